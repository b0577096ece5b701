// Light or dark, before anything is drawn: what was chosen here, else what the system prefers.
(() => {
  const kept = (() => {
    try { return localStorage.getItem("gateway-theme"); } catch { return null; }
  })();
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
