// Sets the light or dark theme before anything is drawn: the user's choice, or else the system's preference.
(() => {
  const kept = (() => {
    try { return localStorage.getItem("gateway-theme"); } catch { return null; }
  })();
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
