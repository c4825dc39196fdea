// The two pens: a canvas, and the text of an SVG file.

import type { Pen, Stroke } from './draw'
import { escaped } from './escaped'
import type { Context } from './paint'

/** Coordinates of a line of about a point for each pixel of a small chart. */
const MANY = 1_000

export function canvasPen(ctx: Context, ratio: number): Pen {
  const trace = (points: number[]) => {
    let down = false
    ctx.beginPath()
    for (let i = 0; i < points.length; i += 2) {
      const [x, y] = [points[i]!, points[i + 1]!]
      if (!Number.isFinite(y) || !Number.isFinite(x)) down = false
      else if (down) ctx.lineTo(x, y)
      else {
        ctx.moveTo(x, y)
        down = true
      }
    }
  }
  return {
    line(points, stroke) {
      ctx.strokeStyle = stroke.color
      ctx.globalAlpha = stroke.alpha
      ctx.lineWidth = stroke.width * ratio
      // Round joins cost most of the time where points are many, and are not seen there.
      ctx.lineJoin = points.length > MANY ? 'bevel' : 'round'
      ctx.setLineDash((stroke.dash ?? []).map((part) => part * ratio))
      trace(points)
      ctx.stroke()
      ctx.setLineDash([])
      ctx.globalAlpha = 1
    },
    area(points, color, alpha) {
      ctx.fillStyle = color
      ctx.globalAlpha = alpha
      trace(points)
      ctx.fill()
      ctx.globalAlpha = 1
    },
    mark(x, y, kind, color) {
      const r = 4 * ratio
      ctx.fillStyle = ctx.strokeStyle = color
      ctx.lineWidth = 1.75 * ratio
      ctx.beginPath()
      for (const [move, dx, dy] of marks[kind]) (move ? ctx.moveTo(x + dx * r, y + dy * r) : ctx.lineTo(x + dx * r, y + dy * r))
      if (kind === 'nan') ctx.stroke()
      else ctx.fill()
    },
    text(x, y, text, color, left) {
      ctx.font = `${11 * ratio}px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`
      ctx.fillStyle = color
      ctx.textAlign = left ? 'right' : 'left'
      ctx.textBaseline = 'alphabetic'
      ctx.fillText(text, x, y)
    },
  }
}

type Steps = readonly (readonly [move: boolean, dx: number, dy: number])[]
const marks: Record<'up' | 'down' | 'nan', Steps> = {
  up: [[true, 0, -1], [false, 1, 0.8], [false, -1, 0.8]],
  down: [[true, 0, 1], [false, 1, -0.8], [false, -1, -0.8]],
  nan: [[true, -0.8, -0.8], [false, 0.8, 0.8], [true, -0.8, 0.8], [false, 0.8, -0.8]],
}

const short = (v: number): string => String(Math.round(v * 10) / 10)

/** A pen that writes into `out`. */
export function svgPen(out: string[]): Pen {
  const trace = (points: number[]): string => {
    const parts: string[] = []
    let down = false
    for (let i = 0; i < points.length; i += 2) {
      const [x, y] = [points[i]!, points[i + 1]!]
      if (!Number.isFinite(y) || !Number.isFinite(x)) down = false
      else {
        parts.push(`${down ? 'L' : 'M'}${short(x)} ${short(y)}`)
        down = true
      }
    }
    return parts.join('')
  }
  const look = ({ color, width, alpha, dash }: Stroke) =>
    `fill="none" stroke="${escaped(color)}" stroke-width="${width}" stroke-opacity="${alpha}" stroke-linejoin="round"` +
    (dash?.length ? ` stroke-dasharray="${dash.join(' ')}"` : '')
  return {
    line: (points, stroke) => void out.push(`<path d="${trace(points)}" ${look(stroke)}/>`),
    area: (points, color, alpha) => void out.push(`<path d="${trace(points)}Z" fill="${escaped(color)}" fill-opacity="${alpha}"/>`),
    mark(x, y, kind, color) {
      const d = marks[kind].map(([move, dx, dy]) => `${move ? 'M' : 'L'}${short(x + 4 * dx)} ${short(y + 4 * dy)}`).join('')
      out.push(`<path d="${d}" ${kind === 'nan' ? `fill="none" stroke="${escaped(color)}" stroke-width="1.75"` : `fill="${escaped(color)}"`}/>`)
    },
    text: (x, y, text, color, left) => void out.push(`<text x="${short(x)}" y="${short(y)}" fill="${escaped(color)}" font-size="11"${left ? ' text-anchor="end"' : ''}>${escaped(text)}</text>`),
  }
}
