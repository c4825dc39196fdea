// Queries worth trying on a run: pure, from its description.

import type { Description, Observable } from '../../data/types'
import { insideOf, leafOf, step } from './inside'

/** Queries worth trying on a run: of what happens often first; numbers before what has many. */
export function suggestions(description: Description): string[] {
  // Logged values are among the charts already.
  const events = Object.entries(description.events).sort(([a, one], [b, other]) => Number(a === 'log') - Number(b === 'log') || other.n_events - one.n_events)
  const often = events.filter(([, { n_events }]) => n_events > 1)
  const found = (often.length ? often : events).flatMap(([event, { observables }]) =>
    Object.entries(observables)
      .flatMap(([name, observable]) => worthTrying(event + step(name), name, observable))
      .sort((a, b) => a.rank - b.rank)
      .slice(0, MAX_OF_EVENT),
  )
  return found.slice(0, MAX_SUGGESTIONS).map(({ query }) => query)
}

const MAX_OF_EVENT = 7
const MAX_SUGGESTIONS = 10

function worthTrying(path: string, name: string, { type, fields }: Observable): { query: string; rank: number }[] {
  if (name === 'step') return []
  if (/^float\d*$/.test(type)) return [{ query: path, rank: 0 }, { query: `${path}.mean(every=100)`, rank: 1 }]
  if (/^int\d*$/.test(type)) return [{ query: path, rank: 4 }]
  const inside = insideOf({ type, fields } as Observable)
  const leaf = leafOf(inside)
  if (leaf) {
    const [first] = inside.children.values()
    return [
      { query: `${path}.map(lambda name, value: norm(value${leafOf(first!)}))`, rank: 2 },
      { query: path + leaf, rank: 3 },
    ]
  }
  if (/^(tuple|mapping)/.test(type)) return [{ query: path, rank: 3 }]
  return /^\w+\[\d+(, \d+)?\]$/.test(type) ? [{ query: path, rank: 3 }] : []
}
