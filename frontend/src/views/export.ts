// A chart as a file: SVG from the same lines and ticks, PNG drawn from that SVG, CSV of the points.

import { drawLines, drawMarks, project, type Line, type Scale } from './draw'
import { escaped } from './escaped'
import { svgPen } from './pens'
import type { Model } from './plot'
import { placeTicks, ticksOf } from './ticks'

const WHOLE = { width: 900, height: 480 }
const LEGEND_ROW = 18

/** A chart as SVG; `named` are the lines in its legend. */
export function svgOf(title: string, xLabel: string, model: Model, named: readonly Line[] = model.lines, size = WHOLE): string {
  const { ink, lines } = model
  const columns = Math.min(Math.round(size.width / 300), Math.max(1, named.length))
  const legendHeight = Math.ceil(named.length / columns) * LEGEND_ROW
  const height = size.height + legendHeight
  const scale: Scale = { ...model, left: 72, top: 44, width: size.width - (model.ys2 ? 136 : 92), height: size.height - 96, ratio: 1 }
  const to = project(scale)
  const text = (x: number, y: number, what: string, more = '') =>
    `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" fill="${ink.text}" font-size="12" ${more}>${escaped(what)}</text>`
  const rule = (x1: number, y1: number, x2: number, y2: number) =>
    `<line x1="${x1.toFixed(1)}" y1="${y1.toFixed(1)}" x2="${x2.toFixed(1)}" y2="${y2.toFixed(1)}" stroke="${ink.grid}"/>`
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${size.width}" height="${height}" viewBox="0 0 ${size.width} ${height}" font-family="system-ui, sans-serif">`,
    `<rect width="${size.width}" height="${height}" fill="${ink.ground}"/>`,
    text(16, 26, title, 'font-weight="600"'),
  ]
  const [right, bottom] = [scale.left + scale.width, scale.top + scale.height]
  const xTicks = model.places ? placeTicks(model.places, model.xs, size.width / 100) : ticksOf(model.xlog ? 'log' : model.kind === 'relative' || model.kind === 'wall' ? model.kind : 'number', model.xs, size.width / 100)
  const yTicks = ticksOf(model.ylog ? 'log' : 'number', model.ys, size.height / 60)
  for (const v of xTicks.at) {
    out.push(rule(to.x(v), scale.top, to.x(v), bottom), text(to.x(v), bottom + 18, xTicks.label(v), 'text-anchor="middle"'))
  }
  for (const v of yTicks.at) {
    out.push(rule(scale.left, to.y(v), right, to.y(v)), text(scale.left - 8, to.y(v) + 4, yTicks.label(v), 'text-anchor="end"'))
  }
  if (model.ys2) {
    const ticks = ticksOf(model.ylog ? 'log' : 'number', model.ys2, size.height / 60)
    const second = project(scale, true)
    for (const v of ticks.at) out.push(text(right + 8, second.y(v) + 4, ticks.label(v)))
  }
  out.push(text(right, bottom + 36, xLabel, 'text-anchor="end"'))
  out.push(`<clipPath id="box"><rect x="${scale.left}" y="${scale.top}" width="${scale.width}" height="${scale.height}"/></clipPath>`)
  out.push('<g clip-path="url(#box)">')
  drawMarks(svgPen(out), model.marks, scale, ink.text)
  drawLines(svgPen(out), lines, scale, null)
  out.push('</g>')
  named.forEach((line, i) => {
    const x = 16 + (i % columns) * ((size.width - 32) / columns)
    const y = size.height - 6 + Math.floor(i / columns) * LEGEND_ROW
    const { color, dash } = line.style
    out.push(`<line x1="${x}" y1="${y - 4}" x2="${x + 18}" y2="${y - 4}" stroke="${escaped(color)}" stroke-width="2" stroke-dasharray="${dash.join(' ')}"/>`)
    out.push(text(x + 24, y, line.label))
  })
  out.push('</svg>')
  return out.join('\n')
}

/** Draw an SVG text as a PNG, twice as fine as it says. */
export async function pngOf(svg: string): Promise<Blob> {
  const url = URL.createObjectURL(new Blob([svg], { type: 'image/svg+xml' }))
  try {
    const image = new Image()
    image.src = url
    await image.decode()
    const canvas = document.createElement('canvas')
    canvas.width = image.width * 2
    canvas.height = image.height * 2
    canvas.getContext('2d')!.drawImage(image, 0, 0, canvas.width, canvas.height)
    return await new Promise((resolve, reject) =>
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('The browser cannot make a PNG of this size'))), 'image/png'),
    )
  } finally {
    URL.revokeObjectURL(url)
  }
}

export interface Table {
  label: string
  /** Of the run, where the file is about runs. */
  id?: string
  /** Where it is not that of the file. */
  tag?: string
  step: Float64Array
  wall: Float64Array
  y: Float64Array
  /** The digits of integers that `y` has rounded, by their places. */
  integers?: ReadonlyMap<number, string> | undefined
}

/** One row a point: the run, where it stands, its value, with all digits; `x` is what the column of steps holds. */
export function csvOf(tag: string, tables: readonly Table[], x = 'step'): string {
  // A name that a spreadsheet would run as a formula is made a text.
  const quoted = (text: string) => `"${(/^[=+\-@]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`
  const rows = [`run,run_id,tag,${x === 'step' ? x : quoted(x)},wall_time,value`]
  for (const { label, id = '', tag: own = tag, step, wall, y, integers } of tables) {
    for (let i = 0; i < y.length; i++) rows.push(`${quoted(label)},${quoted(id)},${quoted(own)},${step[i]},${wall[i]},${integers?.get(i) ?? y[i]}`)
  }
  return rows.join('\n') + '\n'
}

export function saveFile(name: string, content: Blob | string, type = 'text/plain'): void {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }))
  const link = document.createElement('a')
  link.href = url
  link.download = name.replace(/[^\w.-]+/g, '_')
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 10_000)
}
