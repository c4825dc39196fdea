import { expect, test } from 'vitest'
import { undoOf } from '../src/data/edits'
import { isPutAway, parseFilter } from '../src/data/filter'
import type { Annotations, Run } from '../src/data/types'

const annotated = (more: Partial<Annotations>): Annotations => ({ name: '', labels: [], notes: '', archived: false, baseline: false, deleted: 0, ...more })
const run = (more: Partial<Annotations>): Run => ({ key: 'k', id: 'i', name: 'n', own_name: 'n', config: {}, annotations: annotated(more) }) as unknown as Run

test('an edit is undone by what it changed, and by nothing else', () => {
  const before = annotated({ name: 'a', labels: ['best'], notes: 'x', deleted: 5 })
  expect(undoOf({ name: 'b' }, before)).toEqual({ name: 'a' })
  expect(undoOf({ add_labels: ['best', 'new'], remove_labels: ['best', 'old'] }, before)).toEqual({ remove_labels: ['new'], add_labels: ['best'] })
  expect(undoOf({ deleted: false, archived: true, notes: '' }, before)).toEqual({ deleted: true, archived: false, notes: 'x' })
  expect(undoOf({ labels: [] }, before)).toEqual({ labels: ['best'] })
})

test.each([
  ['"best" in labels', true],
  ['labels = Best', true],
  ['labels contains be', false],
  ['labels != best', false],
  ['not labels = other', true],
  ['labels in (other, best)', true],
  ['labels ~ ^be', true],
  ['notes contains jumps', true],
  ['archived = true', false],
  ['deleted', false],
])('%s', (text, matches) => expect(parseFilter(text).matches(run({ labels: ['best', 'paper'], notes: 'It jumps' }))).toBe(matches))

test('what is put away is left out unless it is asked for', () => {
  expect(isPutAway(run({}), new Set())).toBe(false)
  expect(isPutAway(run({ archived: true }), new Set())).toBe(true)
  expect(isPutAway(run({ archived: true }), new Set(['archived']))).toBe(false)
  expect(isPutAway(run({ archived: true, deleted: 1 }), new Set(['archived']))).toBe(true)
})
