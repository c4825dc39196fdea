// Encodes state as a URL fragment: each field has a codec, and default values are left out.

import type { Span } from '../views/span'

export interface Codec<T> {
  /** The field's value for the texts found under its name; none means the default. */
  read: (texts: string[]) => T
  write: (value: T) => string[]
}

export const text = (standard = ''): Codec<string> => ({
  read: ([t]) => t ?? standard,
  write: (v) => (v === standard ? [] : [v]),
})

export const flag = (): Codec<boolean> => ({
  read: ([t]) => t === '1',
  write: (v) => (v ? ['1'] : []),
})

export const number = (standard: number, min = -Infinity, max = Infinity): Codec<number> => ({
  read: ([t]) => (t === undefined || !Number.isFinite(Number(t)) ? standard : Math.min(max, Math.max(min, Number(t)))),
  write: (v) => (v === standard ? [] : [String(v)]),
})

/** A number that may also be absent. */
export const maybeNumber = (): Codec<number | null> => ({
  read: ([t]) => (t === undefined || t === '' || !Number.isFinite(Number(t)) ? null : Number(t)),
  write: (v) => (v === null ? [] : [String(v)]),
})

export const oneOf = <T extends string>(...options: T[]): Codec<T> => ({
  read: ([t]) => options.find((o) => o === t) ?? options[0]!,
  write: (v) => (v === options[0] ? [] : [v]),
})

/** Any number of texts, each its own parameter, so that none needs quoting. */
export const texts = (): Codec<string[]> => ({ read: (t) => t, write: (v) => v })

/** A list that may also be absent, which is not the same as empty. */
export const maybeTexts = (): Codec<string[] | null> => ({
  read: (t) => (t.length === 0 ? null : t.filter((one) => one !== '')),
  write: (v) => (v === null ? [] : v.length === 0 ? [''] : v),
})

export const span = (): Codec<Span | null> => ({
  read: ([t]) => (t === undefined ? null : readSpan(t)),
  write: (v) => (v === null ? [] : [v.join('~')]),
})

/** Spans by name: `name:low~high`; the name is what stands before the last colon. */
export const spans = (): Codec<Record<string, Span>> => ({
  read: (list) => {
    const found = list.map((t) => [t.slice(0, t.lastIndexOf(':')), readSpan(t.slice(t.lastIndexOf(':') + 1))] as const)
    return Object.fromEntries(found.filter((pair): pair is [string, Span] => pair[1] !== null))
  },
  write: (v) => Object.entries(v).map(([name, [low, high]]) => `${name}:${low}~${high}`),
})

/** Whole numbers by name: `name:number`. */
export const numbers = (): Codec<Record<string, number>> => ({
  read: (list) => {
    const found = list.map((t) => [t.slice(0, t.lastIndexOf(':')), Number(t.slice(t.lastIndexOf(':') + 1))] as const)
    return Object.fromEntries(found.filter(([name, n]) => name && Number.isInteger(n) && n >= 0))
  },
  write: (v) => Object.entries(v).map(([name, n]) => `${name}:${n}`),
})

/** Lists of texts: `one|two|three`; a bar within a text is written `\|`. */
export const lists = (): Codec<string[][]> => ({
  read: (t) => t.map((one) => (one.match(/(?:[^|\\]|\\.)+/gs) ?? []).map((part) => part.replace(/\\(.)/gs, '$1'))).filter((list) => list.length > 1),
  write: (v) => v.map((list) => list.map((part) => part.replace(/[|\\]/g, '\\$&')).join('|')),
})

function readSpan(t: string): Span | null {
  const [low, high, ...more] = t.split('~').map(Number)
  return more.length === 0 && Number.isFinite(low) && Number.isFinite(high) && low! < high! ? [low!, high!] : null
}

export type Shape = Record<string, Codec<any>>
export type StateOf<S extends Shape> = { [K in keyof S]: S[K] extends Codec<infer T> ? T : never }

/** Read `/page?name=value&…`. */
export function readFragment<S extends Shape>(shape: S, fragment: string): { page: string; state: StateOf<S> } {
  const [path = '', query = ''] = fragment.replace(/^#?\/?/, '').split(/\?(.*)/s)
  const params = new URLSearchParams(query)
  const state = Object.fromEntries(Object.entries(shape).map(([name, codec]) => [name, codec.read(params.getAll(name))]))
  return { page: path, state: state as StateOf<S> }
}

export function writeFragment<S extends Shape>(shape: S, page: string, state: StateOf<S>): string {
  const params = new URLSearchParams()
  for (const [name, codec] of Object.entries(shape)) for (const t of codec.write(state[name])) params.append(name, t)
  // A fragment may hold these as they are; a link is easier to read so.
  const query = params.toString().replace(/%2F/g, '/').replace(/%3A/g, ':').replace(/%7E/g, '~').replace(/%2C/g, ',').replace(/%7C/g, '|')
  return `#/${page}${query && `?${query}`}`
}
