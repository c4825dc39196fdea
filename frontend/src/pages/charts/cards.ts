// What a chart has of its own, over what the page sets for all: its x, scales, smoothing and size. Kept in the address.

import { at, state, update } from '../../state/state'
import { X_KINDS, type XKind } from '../../data/types'
import type { Span } from '../../views/span'

export interface Card {
  x?: string
  /** Points instead of lines. */
  points?: boolean
  smooth?: number
  xlog?: boolean
  ylog?: boolean
  clip?: boolean
  /** Columns that it takes; 0 for all. */
  wide?: number
  /** Rows that it takes. */
  tall?: number
}

const NUMBERS = ['smooth', 'wide', 'tall'] as const
const FLAGS = ['points', 'xlog', 'ylog', 'clip'] as const

/** The kind of an x that every run has; null for a step track or a series. */
export const kindOfX = (x: string): XKind | null => X_KINDS.find((kind) => kind === x) ?? null

/** The cards in the address: a name, then settings as `ylog:1`. */
export function cardOf(lists: readonly string[][], id: string): Card {
  const settings = lists.find(([name]) => name === id)?.slice(1) ?? []
  const given = new Map(settings.map((one) => [one.slice(0, one.indexOf(':')), one.slice(one.indexOf(':') + 1)]))
  const card: Card = {}
  for (const name of NUMBERS) {
    const value = Number(given.get(name) ?? NaN)
    if (value >= 0 && (name === 'smooth' ? value < 1 : Number.isInteger(value) && value <= 2)) card[name] = value
  }
  for (const name of FLAGS) if (given.has(name)) card[name] = given.get(name) === '1'
  if (given.get('x')) card.x = given.get('x')!
  return card
}

/** The lists with other settings of a card; what is undefined follows the page again. */
export function withCard(lists: readonly string[][], id: string, card: { [K in keyof Card]: Card[K] | undefined }): string[][] {
  const settings = Object.entries(card).flatMap(([name, value]) => (value === undefined ? [] : [`${name}:${typeof value === 'boolean' ? Number(value) : value}`]))
  const others = lists.filter(([name]) => name !== id)
  return settings.length ? [...others, [id, ...settings]] : others
}

/** Change some settings of a card. Another x begins with everything in sight. */
export function setCard(id: string, patch: { [K in keyof Card]: Card[K] | undefined }): void {
  const { cards, xzoom, yzoom } = state.peek()
  const moved = 'x' in patch || 'points' in patch
  update({ cards: withCard(cards, id, { ...cardOf(cards, id), ...patch }), ...(moved && { xzoom: without(xzoom, id), yzoom: without(yzoom, id) }) })
}

/** Let a card follow the page in all; its place stays. */
export const resetCard = (id: string): void => update({ cards: withCard(state.peek().cards, id, {}), xzoom: without(state.peek().xzoom, id) })

export function without<T>(of: Record<string, T>, name: string): Record<string, T> {
  const { [name]: _, ...rest } = of
  return rest
}

/** How a chart is drawn: what it has of its own, else what the page sets. */
export interface Drawing {
  card: Card
  x: string
  /** Whether its x is not that of the page, so that it zooms by itself. */
  apart: boolean
  zoom: Span | null
  smooth: number
  xlog: boolean
  ylog: boolean
  clip: boolean
  points: boolean
}

export function drawingOf(id: string): Drawing {
  const card = cardOf(at.cards.value, id)
  const { x = at.x.value, points = false, smooth = at.smooth.value, xlog = at.xlog.value, ylog = at.ylog.value, clip = at.clip.value } = card
  const apart = x !== at.x.value
  return { card, x, apart, zoom: apart ? (at.xzoom.value[id] ?? null) : at.zoom.value, smooth: points ? 0 : smooth, xlog: xlog && x !== 'wall', ylog, clip, points }
}
