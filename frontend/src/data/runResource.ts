// What the server says of each run, one copy for the whole page: fetched for runs that are drawn or that a component
// shows, and again when there is news of them. While no server answers, `api.ts` asks again.

import { batch, computed, effect, signal, untracked, type ReadonlySignal } from '@preact/signals'
import { useEffect, useMemo } from 'preact/hooks'
import { get, messageOf, runPath } from './api'
import { watch } from './growth'
import { fetchInParts } from './parts'
import { repeated, type Repeated } from './repeated'
import { byKey, shown } from './runs'
import type { Run } from './types'

export interface Shown<T> {
  /** The replies that have come, by their runs; the same map until one of them changes. */
  values: ReadonlyMap<string, T>
  problem: string | null
  loading: boolean
}

interface How<Reply, T> {
  /** What follows the run in the path. */
  path: string
  /** A text that changes when there is news of a run; null if there is nothing to fetch. */
  news: (run: Run) => string | null
  /** What is kept of a reply, given what was kept of the one before. */
  keep: (reply: Reply, before: T | undefined) => T
  n_at_once: number
  /** The rest between two rounds for runs that a component shows. */
  rest_ms: number
  /** The same for runs that are drawn, and which of these. */
  drawn: { only?: (run: Run) => boolean; rest_ms: number }
}

/** A round waits no longer for a run that hangs. */
const ROUND_MS = 5_000

type Answer<Reply> = { key: string; reply: Reply } | { key: string; problem: string }

export class RunResource<Reply, T> {
  readonly values = signal<ReadonlyMap<string, T>>(new Map())
  /** Why runs could not be read, for those whose last reply was an error. */
  readonly problems = signal<ReadonlyMap<string, string>>(new Map())
  /** How many components show a run. */
  private readonly users = signal<ReadonlyMap<string, number>>(new Map())
  private readonly asked = new Map<string, string | null>()
  private readonly awaited = new Set<string>()
  private readonly rounds: Repeated[] = []
  private readonly fetchAll: (runs: readonly string[]) => Promise<void>
  private following = false

  constructor(private readonly how: How<Reply, T>) {
    this.fetchAll = fetchInParts(how.n_at_once, (run) => this.fetch(run), (answers) => this.takeIn(answers))
  }

  of(run: string): T | undefined {
    return this.values.value.get(run)
  }

  /** A part of each value: the same map until a part is another object. */
  each<Part>(pick: (value: T) => Part): ReadonlySignal<ReadonlyMap<string, Part>> {
    let last: ReadonlyMap<string, Part> = new Map()
    return computed(() => {
      const now = new Map([...this.values.value].map(([key, value]) => [key, pick(value)]))
      const same = now.size === last.size && [...now].every(([key, part]) => last.get(key) === part)
      return same ? last : (last = now)
    })
  }

  /** Whether the first reply of a run is still to come. */
  awaits(run: Run | undefined): boolean {
    return run !== undefined && this.how.news(run) !== null && !this.values.value.has(run.key) && !this.problems.value.has(run.key)
  }

  /** Keep the runs that are drawn up to date. */
  followDrawn(): void {
    const { only = () => true, rest_ms } = this.how.drawn
    this.repeat(() => shown.value.filter(only), rest_ms)
  }

  /** Fetch a run's again, though there is no news of it. */
  async load(run: string): Promise<void> {
    this.takeIn([await this.fetch(run)])
  }

  /** Keep some runs up to date until the function is called that this returns. */
  follow(runs: readonly string[]): () => void {
    this.followUsed()
    const ends = runs.map((run) => (this.count(run, 1), watch(run)))
    return () => {
      for (const run of runs) this.count(run, -1)
      for (const end of ends) end()
    }
  }

  private count(run: string, by: number): void {
    const n = (this.users.peek().get(run) ?? 0) + by
    const users = new Map(this.users.peek())
    if (n > 0) users.set(run, n)
    else users.delete(run)
    this.users.value = users
  }

  private followUsed(): void {
    if (this.following) return
    this.following = true
    this.repeat(() => [...this.users.value.keys()].flatMap((key) => byKey.value.get(key) ?? []), this.how.rest_ms)
  }

  /** Fetch some runs: at once those that were never fetched, the others when there is news, with a rest between. */
  private repeat(runs: () => readonly Run[], rest_ms: number): void {
    const stale = () => runs().filter((run) => this.how.news(run) !== null && this.asked.get(run.key) !== this.how.news(run))
    const again = repeated(() => Promise.race([this.ask(untracked(stale)), new Promise<void>((done) => setTimeout(done, ROUND_MS))]), rest_ms)
    this.rounds.push(again)
    effect(() => {
      const now = stale()
      void untracked(() => this.ask(now.filter((run) => !this.asked.has(run.key))))
      if (now.length) again.tell()
    })
  }

  private async ask(runs: readonly Run[]): Promise<void> {
    const free = runs.filter(({ key }) => !this.awaited.has(key))
    for (const run of free) {
      this.asked.set(run.key, this.how.news(run))
      this.awaited.add(run.key)
    }
    await this.fetchAll(free.map(({ key }) => key))
  }

  private async fetch(key: string): Promise<Answer<Reply>> {
    try {
      return { key, reply: await get<Reply>(runPath(key, this.how.path)) }
    } catch (error) {
      return { key, problem: messageOf(error) }
    }
  }

  /** Store many replies at once: what depends on them is computed less often. */
  private takeIn(answers: readonly Answer<Reply>[]): void {
    const [values, problems] = [new Map(this.values.peek()), new Map(this.problems.peek())]
    for (const answer of answers) {
      this.awaited.delete(answer.key)
      if ('problem' in answer) problems.set(answer.key, answer.problem)
      else {
        problems.delete(answer.key)
        values.set(answer.key, this.how.keep(answer.reply, values.get(answer.key)))
      }
    }
    const turned = problems.size !== this.problems.peek().size || [...problems].some(([key, problem]) => this.problems.peek().get(key) !== problem)
    batch(() => {
      this.values.value = values
      if (turned) this.problems.value = problems
    })
    for (const round of this.rounds) round.tell() // there may have been news meanwhile
  }
}

/** What a resource has of some runs, which it keeps up to date while a component shows them. */
export function useResource<Reply, T>(resource: RunResource<Reply, T>, runs: readonly string[]): Shown<T> {
  const name = runs.join('\n')
  useEffect(() => resource.follow(runs), [name])
  const found = runs.map((run) => resource.of(run))
  const values = useMemo(() => new Map(runs.flatMap((run, i) => (found[i] === undefined ? [] : [[run, found[i]] as const]))), [name, ...found])
  const messages = runs.flatMap((run) => resource.problems.value.get(run) ?? [])
  const problem = messages.length > 1 ? `${messages[0]} (and ${messages.length - 1} more)` : (messages[0] ?? null)
  return { values, problem, loading: runs.some((run) => resource.awaits(byKey.value.get(run))) }
}

/** The same of one run, or of none. */
export function useOneResource<Reply, T>(resource: RunResource<Reply, T>, run: string): { value: T | null; problem: string | null; loading: boolean } {
  const { values, problem, loading } = useResource(resource, run ? [run] : [])
  return { value: values.get(run) ?? null, problem, loading }
}
