// A canvas that is painted at the size of its box, and repainted when the box or its content changes.

import { useContext, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { readInk, type Ink } from './ink'
import { SvgContext } from './svgContext'
import { Root } from './root'

/** An outline to fill or draw later. */
export interface Outline {
  moveTo: (x: number, y: number) => void
  lineTo: (x: number, y: number) => void
}

type Used = 'save' | 'restore' | 'beginPath' | 'moveTo' | 'lineTo' | 'arc' | 'rect' | 'clip' | 'fillRect' | 'fillText' | 'setLineDash' | 'font' | 'textAlign' | 'textBaseline' | 'fillStyle' | 'strokeStyle' | 'lineWidth' | 'lineJoin' | 'globalAlpha'

/** The part of a canvas context that painters use; `SvgContext` implements it too. */
export interface Context extends Pick<CanvasRenderingContext2D, Used> {
  stroke(): void
  stroke(outline: Path2D): void
  fill(): void
  fill(outline: Path2D): void
  measureText(text: string): { width: number }
}

export interface Sheet {
  ctx: Context
  /** An outline that this sheet's context can fill and draw. */
  outline: () => Outline & Path2D
  /** CSS pixels. */
  width: number
  height: number
  ink: Ink
}

export const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'

interface Print {
  paint: (sheet: Sheet) => void
  root: Element | undefined
}

/** How each canvas was painted, to repaint it into a file. */
const prints = new WeakMap<HTMLCanvasElement, Print>()

/** The content of a canvas as the inside of an SVG; null if it was not painted here. */
export function svgOfCanvas(canvas: HTMLCanvasElement): { width: number; height: number; text: string } | null {
  const print = prints.get(canvas)
  const { width, height } = canvas.getBoundingClientRect()
  if (!print || width < 1 || height < 1) return null
  const ctx = new SvgContext(canvas.getContext('2d')!)
  ctx.font = FONT
  print.paint({ ctx, outline: () => ctx.outline() as unknown as Outline & Path2D, width, height, ink: readInk(print.root) })
  return { width, height, text: ctx.text }
}

/** Paint on a canvas; `changes` are what the painting depends on. */
export function usePainted(paint: (sheet: Sheet) => void, changes: unknown[]) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const root = useContext(Root) ?? undefined
  const [size, setSize] = useState('')
  useLayoutEffect(() => {
    const sizes = new ResizeObserver(([entry]) => setSize(`${entry!.contentRect.width} ${entry!.contentRect.height}`))
    if (canvas.current) sizes.observe(canvas.current.parentElement!) // it may have left the page in the same turn
    return () => sizes.disconnect()
  }, [])
  useLayoutEffect(() => {
    if (!canvas.current) return
    const { width, height } = canvas.current.parentElement!.getBoundingClientRect()
    if (width < 1 || height < 1) return
    const ratio = devicePixelRatio || 1
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)]
    if (canvas.current.width !== w) canvas.current.width = w
    if (canvas.current.height !== h) canvas.current.height = h
    const ctx = canvas.current.getContext('2d')!
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0)
    ctx.clearRect(0, 0, width, height)
    ctx.font = FONT
    prints.set(canvas.current, { paint, root })
    paint({ ctx, outline: () => new Path2D(), width, height, ink: readInk(root) })
  }, [size, ...changes])
  return canvas
}
