import { expect, it } from 'vitest'
import type { Run } from '../src/data/types'
import { isPattern, matches, MAX_RUNS, membersOf, patternOf, streamsOfRuns } from '../src/pages/ask/fleet'
import { readPanel, writePanel } from '../src/pages/ask/panels'

const runs = (...names: string[]): Run[] => names.map((name, i) => ({ key: `k-${name}`, name, started: i }) as Run)

it.each([
  ['sweep-*', ['sweep-', 'sweep-1', 'sweep-a.b'], ['sweep', 'a-sweep-1', 'Sweep-1']],
  ['*', ['', 'a b\nc'], []],
  ['run-?', ['run-1'], ['run-', 'run-12']],
  ['run-[0-3]', ['run-0', 'run-3'], ['run-4', 'run-[0-3]']],
  ['run-[!0-3]', ['run-4'], ['run-0']],
  ['a.b(*)$', ['a.b(c)$'], ['aXb(c)$']],
  ['[^a]\\', ['^\\', 'a\\'], ['b\\']],
  ['open[', ['open['], ['open']],
  ['[z-a]*', [], ['z', 'a']],
])('%s matches as in Python', (pattern, some, others) => {
  for (const name of some) expect(matches(pattern, name), name).toBe(true)
  for (const name of others) expect(matches(pattern, name), name).toBe(false)
})

it('a text without a wildcard is the beginning of a name', () => {
  expect(['sweep', ' sweep-* ', '', 'a|b\nc'].map(patternOf)).toEqual(['sweep*', 'sweep-*', '*', 'abc*'])
  expect(isPattern('7f2a90c1')).toBe(false)
})

it('a pattern stands for a stream of each of its newest runs, the oldest first', () => {
  const asked = [{ run: 'k', query: 'q', second: false }, { run: 'a*', query: 'p', second: true }]
  expect(streamsOfRuns(asked, runs('b', 'a2', 'a1').reverse())).toEqual([
    { run: 'k', query: 'q', second: false, of: 0 },
    { run: 'k-a2', query: 'p', second: true, of: 1 },
    { run: 'k-a1', query: 'p', second: true, of: 1 },
  ])
  const many = runs(...Array.from({ length: MAX_RUNS + 2 }, (_, i) => `n${i}`))
  expect(membersOf('n*', many)).toHaveLength(MAX_RUNS + 2)
  expect(streamsOfRuns([{ run: 'n*', query: 'q', second: false }], many).map(({ run }) => run).at(0)).toBe('k-n2')
})

it('a pattern stands in the URL', () => {
  const text = 'sweep-*||batch.loss'
  expect(writePanel(readPanel(text)!)).toBe(text)
})
