"""A FastAPI program that takes files and tables, and streams lines and events, as its documentation has them.

`uvicorn fastapi_media:app` serves it.
"""

import csv
import io
import json
from typing import Annotated

from fastapi import FastAPI, File, Form, Request, UploadFile
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel

app = FastAPI()


class Prompt(BaseModel):
    prompt: str


@app.post("/upload")
async def upload(image: UploadFile, crop: Annotated[str, Form()], caption: Annotated[str, Form()]):
    start, stop = json.loads(crop)
    content = await image.read()
    return {"size": len(content[start:stop]), "caption": caption}


@app.post("/files")
async def files(one: Annotated[bytes, File()], other: Annotated[bytes | None, File()] = None):
    return {"sizes": [len(one), -1 if other is None else len(other)]}


@app.post("/table")
async def table(request: Request):
    file = io.StringIO()
    written = csv.writer(file)
    written.writerow(["prediction", "name"])
    for row in csv.DictReader(io.StringIO((await request.body()).decode(), newline="")):
        written.writerow([2 * float(row["a"]) + 3 * float(row["b"]) + 1, row["name"]])
    return PlainTextResponse(file.getvalue(), media_type="text/csv; header=present")


@app.post("/lines")
async def lines(prompt: Prompt):
    texts = (json.dumps({"word": word}) + "\n" for word in prompt.prompt.split())
    return StreamingResponse(texts, media_type="application/x-ndjson")


@app.post("/events")
async def events(prompt: Prompt):
    texts = [f"data: {json.dumps({'word': word})}\r\n\r\n" for word in prompt.prompt.split()]
    return StreamingResponse([": begin\r\n\r\n", *texts, "data: [DONE]\r\n\r\n"], media_type="text/event-stream")


@app.get("/health")
def health():
    return {"status": "ok"}
