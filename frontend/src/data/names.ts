// Runs of one name, distinguished by as little as possible: their projects, config values that differ, or else the start
// time, or else the id.

import { value } from '../views/format'
import { flatten } from './filter'
import type { Run } from './types'

type Named = Pick<Run, 'key' | 'id' | 'name' | 'project' | 'started' | 'config'>

const MAX_KEYS = 3
const MAX_VALUE_LENGTH = 20

/** The addition to each run's name, by run key: `lr=0.1 seed=2`; empty for a unique name. */
export function namesApart(runs: readonly Named[]): Map<string, string> {
  const said = new Map<string, string>()
  for (const same of grouped(runs, (run) => run.name)) {
    const folders = grouped(same, (run) => run.project)
    for (const mine of folders) {
      const parts = mine.length > 1 ? partsOf(mine) : new Map([[mine[0]!.key, []]])
      for (const [key, more] of parts) said.set(key, (folders.length > 1 ? [mine[0]!.project, ...more] : more).filter(Boolean).join(' '))
    }
  }
  return said
}

function partsOf(same: readonly Named[]): Map<string, string[]> {
  const parts = byConfig(same)
  const add = (text: (run: Named, alike: readonly Named[]) => string) => {
    for (const alike of grouped(same, (run) => parts.get(run.key)!.join(' '))) {
      if (alike.length > 1) for (const run of alike) parts.set(run.key, [...parts.get(run.key)!, text(run, alike)])
    }
  }
  if (grouped(same, (run) => String(Math.floor(run.started ?? 0))).length > 1) add(startOf)
  add((run, alike) => idOf(run, alike))
  return parts
}

/** Choose keys one by one, each time the one that distinguishes most runs; show them in the order of the config. */
function byConfig(same: readonly Named[]): Map<string, string[]> {
  const flat = new Map(same.map((run) => [run.key, textsOf(run)]))
  const keys = new Set([...flat.values()].flatMap((texts) => [...texts.keys()]))
  const left = new Set([...keys].filter((key) => new Set([...flat.values()].map((texts) => texts.get(key))).size > 1))
  const taken: string[] = []
  const classes = (keys: string[]) => new Set(same.map((run) => JSON.stringify(keys.map((key) => flat.get(run.key)!.get(key) ?? null)))).size
  let n = 1
  while (taken.length < MAX_KEYS && n < same.length) {
    let [best, most] = ['', n]
    for (const key of left) {
      const found = classes([...taken, key])
      if (found > most) [best, most] = [key, found]
    }
    if (!best) break
    taken.push(best)
    left.delete(best)
    n = most
  }
  taken.sort((a, b) => [...keys].indexOf(a) - [...keys].indexOf(b))
  const short = shortened(taken)
  return new Map(same.map(({ key }) => [key, taken.map((name, i) => said(short[i]!, flat.get(key)!.get(name)))]))
}

const said = (name: string, text: string | undefined): string => (text === undefined ? `no ${name}` : `${name}=${text}`)

function textsOf(run: Named): Map<string, string> {
  return new Map(Object.entries(flatten(run.config)).map(([key, one]) => [key, cut(value(one))]))
}

const cut = (text: string): string => (text.length > MAX_VALUE_LENGTH ? `${text.slice(0, MAX_VALUE_LENGTH - 1)}…` : text)

/** The last part of a dotted name says enough as long as no other ends like it. */
function shortened(keys: string[]): string[] {
  const ends = keys.map((key) => key.slice(key.lastIndexOf('.') + 1))
  return keys.map((key, i) => (ends.filter((end) => end === ends[i]).length > 1 ? key : ends[i]!))
}

function startOf(run: Named, alike: readonly Named[]): string {
  if (run.started === null) return 'at an unknown time'
  const [day, clock] = partsOfDate(run.started)
  const oneDay = alike.every((other) => other.started !== null && partsOfDate(other.started)[0] === day)
  return oneDay ? clock : `${day} ${clock}`
}

function partsOfDate(seconds: number): [day: string, clock: string] {
  const date = new Date(seconds * 1000)
  const two = (n: number) => String(n).padStart(2, '0')
  return [`${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`, `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`]
}

function idOf(run: Named, alike: readonly Named[]): string {
  for (let n = 4; n < run.key.length; n++) {
    const start = run.key.slice(0, n)
    if (alike.every((other) => other === run || !other.key.startsWith(start))) return start
  }
  return run.key
}

function grouped<T>(items: readonly T[], nameOf: (item: T) => string): T[][] {
  const found = new Map<string, T[]>()
  for (const item of items) {
    const name = nameOf(item)
    const members = found.get(name)
    if (members) members.push(item)
    else found.set(name, [item])
  }
  return [...found.values()]
}
