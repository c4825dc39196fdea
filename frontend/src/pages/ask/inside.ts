// The contents of an observable that is a mapping. A run describes them as paths joined by dots; names may hold dots too.

import type { Observable } from '../../data/types'

export interface Inside {
  type: string
  children: Map<string, Inside>
}

const IDENTIFIER = /^[A-Za-z_]\w*$/

/** A name as a suffix of its owner: `.loss`, `["val/loss"]`. */
export const step = (name: string): string => (IDENTIFIER.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`)

export function insideOf({ type, fields }: Observable): Inside {
  const n = Number(/^mapping of (\d+)/.exec(type)?.[1])
  const names = Object.keys(fields)
  const root: Inside = { type, children: new Map() }
  for (const name of names) {
    let at = root
    for (const part of names.length === n ? [name] : name.split('.')) {
      if (!at.children.has(part)) at.children.set(part, { type: '', children: new Map() })
      at = at.children.get(part)!
    }
    at.type = fields[name]!
  }
  return root
}

/** The first leaf's path from here, as it is written. */
export function leafOf({ children }: Inside): string {
  const [first] = children
  return first ? step(first[0]) + leafOf(first[1]) : ''
}
