// Plotly's script and the frame for its figures, from the server; neither is fetched before there is a figure to draw.

import { drawPlotlyWith, once } from '../views/plotly'
import { file } from './file'

const place = (name: string): string => new URL(name, location.origin + location.pathname).href

async function script(): Promise<string> {
  const answer = await fetch(place('plotly.js'), { credentials: 'same-origin', referrerPolicy: 'no-referrer' })
  if (answer.ok) return answer.text()
  const body = (await answer.json().catch(() => null)) as { error?: { message?: string } } | null
  throw new Error(body?.error?.message ?? `The server answered ${answer.status} in place of Plotly's script`)
}

export function drawPlotly(): void {
  if (!file) drawPlotlyWith({ frame: { src: place('figure-frame') }, script: once(script) })
}
