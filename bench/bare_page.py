"""The yardstick of live charts: a page of nothing but uPlot, which draws what a websocket brings.

`python -m bench.bare_page EVENTS_PER_S PORT`: one process makes the same events as the training of
`bench.event_to_pixel`, and sends what is new every few milliseconds, as columns of numbers. `/jumps` tells when its
values jumped.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from pathlib import Path

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

UPLOT = Path(__file__).resolve().parents[1] / "frontend" / "node_modules" / "uplot" / "dist"
SEND_S = 0.005  # less than a third of a frame, and cheap for both sides

PAGE = """<!doctype html>
<link rel="stylesheet" href="uPlot.min.css">
<article id="chart"></article>
<script src="uPlot.iife.min.js"></script>
<script>
const of = new URLSearchParams(location.search)
const [xs, ys] = [[], []]
const chart = new uPlot({
  width: Number(of.get('width')), height: Number(of.get('height')), legend: { show: false },
  scales: { x: { time: false } }, series: [{}, { stroke: '#1f77b4', points: { show: false } }],
}, [xs, ys], document.getElementById('chart'))
let frame = 0
const draw = () => { frame = 0; chart.setData([xs, ys]) }
const socket = new WebSocket(`ws://${location.host}/points`)
socket.binaryType = 'arraybuffer'
socket.onmessage = ({ data }) => {
  const columns = new Float64Array(data)
  const n = columns.length / 2
  for (let i = 0; i < n; i++) { xs.push(columns[i]); ys.push(columns[n + i]) }
  frame ||= requestAnimationFrame(draw)
}
</script>
"""

flips: list[float] = []


async def points(socket: WebSocket) -> None:
    await socket.accept()
    per_s, began_s = float(sys.argv[1]), time.perf_counter()
    level, flip, step = 0.0, time.time() + 1, 0
    try:
        while True:
            await asyncio.sleep(SEND_S)
            steps, levels = [], []
            while step < (time.perf_counter() - began_s) * per_s:
                if time.time() >= flip:
                    level, flip = 1 - level, time.time() + random.uniform(0.5, 0.9)
                    flips.append(time.time())
                steps.append(float(step))
                levels.append(level)
                step += 1
            await socket.send_bytes(np.array([*steps, *levels]).tobytes())
    except WebSocketDisconnect:
        pass


async def page(request: Request) -> Response:
    return HTMLResponse(PAGE)


async def jumps(request: Request) -> Response:
    return Response(" ".join(map(str, flips)))


async def file(request: Request) -> Response:
    return FileResponse(UPLOT / Path(request.url.path).name)


ROUTES = [
    Route("/", page), Route("/jumps", jumps), Route("/uPlot.min.css", file), Route("/uPlot.iife.min.js", file),
    WebSocketRoute("/points", points),
]  # fmt: skip

if __name__ == "__main__":
    uvicorn.run(Starlette(routes=ROUTES), port=int(sys.argv[2]), log_level="error")
