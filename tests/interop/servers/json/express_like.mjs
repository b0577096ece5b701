// A program as Express's tutorials have it, on Node's own server: a list in an envelope. `node express_like.mjs PORT`

import { createServer } from "node:http";

createServer((request, response) => {
  let text = "";
  request.on("data", (piece) => (text += piece));
  request.on("end", () => {
    const reply = (status, body) => {
      response.writeHead(status, { "Content-Type": "application/json; charset=utf-8" });
      response.end(JSON.stringify(body));
    };
    if (request.method !== "POST" || request.url !== "/api/predict") {
      return reply(404, { success: false, error: `Cannot ${request.method} ${request.url}` });
    }
    const { input } = JSON.parse(text);
    reply(200, { success: true, data: { output: input.map(([a, b]) => 2 * a + b), count: input.length } });
  });
}).listen(Number(process.argv[2]), "127.0.0.1");
