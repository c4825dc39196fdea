import { describe, expect, test } from 'vitest'
import type { Tag, TagType } from '../src/data/types'
import { mergedSteps, mergedTags, splitBy, stepUntil } from '../src/pages/media/tags'

const tag = (name: string, type: TagType, n = 1): Tag => ({ tag: name, name, type, dtype: '', stored_as: '', shape: '', n, first_step: 0, last_step: 1, query: '' })

test('tags of several runs come once, with the runs that have them, and only what can be seen', () => {
  const found = mergedTags(new Map([
    ['a', [tag('img10', 'image', 3), tag('loss', 'scalar'), tag('img2', 'image')]],
    ['b', [tag('img10', 'image', 7), tag('note', 'text')]],
  ]))
  expect(found.map(({ tag, runs, n }) => [tag, [...runs.keys()], n])).toEqual([['img2', ['a'], 1], ['img10', ['a', 'b'], 7], ['note', ['b'], 1]])
})

test('an image and a text of one tag are two, each asked for by the name that its run gives it', () => {
  const named = (name: string, type: TagType): Tag => ({ ...tag('x', type), name })
  const found = mergedTags(new Map([
    ['own', [tag('x', 'figure')]],
    ['other', [named('x:text', 'text'), named('x:image', 'image')]],
  ]))
  expect(found.map(({ type, runs }) => [type, Object.fromEntries(runs)])).toEqual([
    ['figure', { own: 'x', other: 'x:image' }],
    ['text', { other: 'x:text' }],
  ])
})

describe('steps of several runs', () => {
  test('together, in order, each once', () => {
    expect(mergedSteps([[0, 100], [0, 50, 200]])).toEqual([0, 50, 100, 200])
  })

  test('a run shows its last until then', () => {
    expect(stepUntil([10, 20], 5)).toBeNull()
    expect(stepUntil([10, 20], 15)).toBe(10)
    expect(stepUntil([10, 20], 99)).toBe(20)
  })
})

test('what was searched for stands apart, in its own spelling', () => {
  expect(splitBy('A.b a.B', 'a.b')).toEqual(['', 'A.b', ' ', 'a.B', ''])
  expect(splitBy('<b>', '')).toEqual(['<b>'])
})
