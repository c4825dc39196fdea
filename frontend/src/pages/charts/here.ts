// The moment that the drawer shows, as a mark in the charts.

import { signal } from '@preact/signals'
import { styleOfRun } from '../../data/looks'
import { knownRun } from '../../data/runs'
import type { XKind } from '../../data/types'
import { at } from '../../state/state'
import type { CommandMark } from './marks'

export interface Here {
  run: string
  /** In seconds since 1970. */
  wall: number
  /** The step that the run had reached. */
  step: number | null
}

export const here = signal<Here | null>(null)

/** The moment in the address, or null. */
export function momentOf(text: string): { run: string; wall: number } | null {
  const [wall, run] = [Number(text.split(' ', 1)[0] || NaN), text.slice(text.indexOf(' ') + 1)]
  return Number.isFinite(wall) && text.includes(' ') ? { run, wall } : null
}

/** Where it is on an axis. */
export function hereOn(kind: XKind | null): CommandMark[] {
  const now = at.moment.value && kind ? here.value : null
  if (!now) return []
  const started = knownRun(now.run)?.started ?? null
  const x = kind === 'wall' ? now.wall : kind === 'step' ? now.step : started === null ? null : now.wall - started
  return x === null ? [] : [{ x, label: 'this moment', color: styleOfRun(now.run).color, run: now.run }]
}
