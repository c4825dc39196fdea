// A canvas that is painted at the size of its box, and again when either its box or what it shows changes.

import { useContext, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { readInk } from './ink'
import type { Ink } from './plot'
import { Root } from './root'

export interface Sheet {
  ctx: CanvasRenderingContext2D
  /** CSS pixels. */
  width: number
  height: number
  ink: Ink
}

export const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'

/** Paint on a canvas; `changes` are what the painting depends on. */
export function usePainted(paint: (sheet: Sheet) => void, changes: unknown[]) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const root = useContext(Root) ?? undefined
  const [size, setSize] = useState('')
  useLayoutEffect(() => {
    const sizes = new ResizeObserver(([entry]) => setSize(`${entry!.contentRect.width} ${entry!.contentRect.height}`))
    sizes.observe(canvas.current!.parentElement!)
    return () => sizes.disconnect()
  }, [])
  useLayoutEffect(() => {
    const { width, height } = canvas.current!.parentElement!.getBoundingClientRect()
    if (width < 1 || height < 1) return
    const ratio = devicePixelRatio || 1
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)]
    if (canvas.current!.width !== w) canvas.current!.width = w
    if (canvas.current!.height !== h) canvas.current!.height = h
    const ctx = canvas.current!.getContext('2d')!
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0)
    ctx.clearRect(0, 0, width, height)
    ctx.font = FONT
    paint({ ctx, width, height, ink: readInk(root) })
  }, [size, ...changes])
  return canvas
}
