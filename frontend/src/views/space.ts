// Points in three dimensions, turned and seen from afar: pure, so that it can be tested without a canvas.

import type { Span } from './span'

export interface Turn {
  /** Around the upright axis, and up from the ground, in radians. */
  yaw: number
  pitch: number
  zoom: number
}

export const FIRST: Turn = { yaw: -0.9, pitch: 0.45, zoom: 1 }
const MAX_PITCH = Math.PI / 2
const [MIN_ZOOM, MAX_ZOOM] = [0.4, 6]

export type Point = [x: number, y: number, depth: number]

export function turned(turn: Turn, by: Partial<Turn>): Turn {
  return {
    yaw: (turn.yaw + (by.yaw ?? 0)) % (2 * Math.PI),
    pitch: Math.min(MAX_PITCH, Math.max(-MAX_PITCH, turn.pitch + (by.pitch ?? 0))),
    zoom: Math.min(MAX_ZOOM, Math.max(MIN_ZOOM, turn.zoom * (by.zoom ?? 1))),
  }
}

/** Where a corner of the cube from −1 to 1 is seen: right, down, and how near, from −1 to 1 or so. */
export function seen({ yaw, pitch }: Turn, x: number, y: number, z: number): Point {
  const across = x * Math.cos(yaw) - y * Math.sin(yaw)
  const away = x * Math.sin(yaw) + y * Math.cos(yaw)
  return [across, -(z * Math.cos(pitch) + away * Math.sin(pitch)), (z * Math.sin(pitch) - away * Math.cos(pitch)) / Math.sqrt(3)]
}

/** From values to −1 … 1. */
export const unit = ([low, high]: Span, value: number): number => (high > low ? (2 * (value - low)) / (high - low) - 1 : 0)

/** The smallest and the largest finite value. */
export function spanOf(columns: readonly ArrayLike<number>[]): Span {
  let [low, high] = [Infinity, -Infinity]
  for (const column of columns) {
    for (let i = 0; i < column.length; i++) {
      const value = column[i]!
      if (!Number.isFinite(value)) continue
      if (value < low) low = value
      if (value > high) high = value
    }
  }
  if (low > high) return [0, 1]
  return low === high ? [low - 0.5, high + 0.5] : [low, high]
}
