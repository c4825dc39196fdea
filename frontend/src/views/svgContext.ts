// The canvas context that painters use, writing SVG.

import { escaped } from './escaped'

const short = (v: number): string => String(Math.round(v * 100) / 100)

interface State {
  fillStyle: string
  strokeStyle: string
  lineWidth: number
  lineJoin: CanvasLineJoin
  globalAlpha: number
  font: string
  textAlign: CanvasTextAlign
  textBaseline: CanvasTextBaseline
  dash: number[]
  /** How many groups are open within it. */
  groups: number
}

const ANCHORS: Record<string, string> = { left: 'start', center: 'middle', right: 'end' }
const BASELINES: Record<string, string> = { top: 'hanging', middle: 'central', alphabetic: 'auto' }

class Trace {
  d = ''
  moveTo(x: number, y: number): void {
    this.add('M', x, y)
  }
  lineTo(x: number, y: number): void {
    this.add(this.d ? 'L' : 'M', x, y)
  }
  private add(letter: string, x: number, y: number): void {
    if (Number.isFinite(x) && Number.isFinite(y)) this.d += `${letter}${short(x)} ${short(y)}`
  }
}

let n_clips = 0

export class SvgContext implements State {
  fillStyle: string = '#000'
  strokeStyle: string = '#000'
  lineWidth = 1
  lineJoin: CanvasLineJoin = 'miter'
  globalAlpha = 1
  font = ''
  textAlign: CanvasTextAlign = 'left'
  textBaseline: CanvasTextBaseline = 'alphabetic'
  dash: number[] = []
  groups = 0
  private out: string[] = []
  private path = new Trace()
  private states: State[] = []

  /** @param measure - A context that measures texts. */
  constructor(private readonly measure: { font: string; measureText: (text: string) => { width: number } }) {}

  get text(): string {
    return this.out.join('\n')
  }

  outline(): Trace {
    return new Trace()
  }

  save(): void {
    const { fillStyle, strokeStyle, lineWidth, lineJoin, globalAlpha, font, textAlign, textBaseline, dash, groups } = this
    this.states.push({ fillStyle, strokeStyle, lineWidth, lineJoin, globalAlpha, font, textAlign, textBaseline, dash, groups })
    this.groups = 0
  }

  restore(): void {
    for (; this.groups > 0; this.groups--) this.out.push('</g>')
    Object.assign(this, this.states.pop())
  }

  beginPath(): void {
    this.path = new Trace()
  }

  moveTo(x: number, y: number): void {
    this.path.moveTo(x, y)
  }

  lineTo(x: number, y: number): void {
    this.path.lineTo(x, y)
  }

  rect(x: number, y: number, width: number, height: number): void {
    this.path.d += `M${short(x)} ${short(y)}h${short(width)}v${short(height)}h${short(-width)}Z`
  }

  /** Only whole circles are painted. */
  arc(x: number, y: number, r: number): void {
    if (!Number.isFinite(x + y)) return
    this.path.d += `M${short(x - r)} ${short(y)}a${short(r)} ${short(r)} 0 1 0 ${short(2 * r)} 0a${short(r)} ${short(r)} 0 1 0 ${short(-2 * r)} 0`
  }

  clip(): void {
    const id = `clip-${n_clips++}`
    this.out.push(`<clipPath id="${id}"><path d="${this.path.d}"/></clipPath><g clip-path="url(#${id})">`)
    this.groups++
  }

  setLineDash(dash: number[]): void {
    this.dash = dash
  }

  stroke(outline?: unknown): void {
    const { d } = (outline as Trace | undefined) ?? this.path
    if (!d) return
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(' ')}"` : ''
    this.out.push(`<path d="${d}" fill="none" stroke="${escaped(this.strokeStyle)}" stroke-width="${short(this.lineWidth)}" stroke-linejoin="${this.lineJoin}"${this.alpha('stroke')}${dash}/>`)
  }

  fill(outline?: unknown): void {
    const { d } = (outline as Trace | undefined) ?? this.path
    if (d) this.out.push(`<path d="${d}" fill="${escaped(this.fillStyle)}"${this.alpha('fill')}/>`)
  }

  fillRect(x: number, y: number, width: number, height: number): void {
    this.out.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" fill="${escaped(this.fillStyle)}"${this.alpha('fill')}/>`)
  }

  fillText(text: string, x: number, y: number): void {
    if (!Number.isFinite(x + y)) return
    const size = /(\d+(?:\.\d+)?)px/.exec(this.font)?.[1] ?? '11'
    this.out.push(`<text x="${short(x)}" y="${short(y)}" font-size="${size}" text-anchor="${ANCHORS[this.textAlign] ?? 'start'}" dominant-baseline="${BASELINES[this.textBaseline] ?? 'auto'}" fill="${escaped(this.fillStyle)}"${this.alpha('fill')}>${escaped(text)}</text>`)
  }

  measureText(text: string): { width: number } {
    this.measure.font = this.font
    return this.measure.measureText(text)
  }

  private alpha(what: 'fill' | 'stroke'): string {
    return this.globalAlpha < 1 ? ` ${what}-opacity="${short(this.globalAlpha)}"` : ''
  }
}
