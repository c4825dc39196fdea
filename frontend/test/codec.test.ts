import { expect, test } from 'vitest'
import { flag, lists, maybeTexts, number, numbers, oneOf, readFragment, span, spans, text, texts, writeFragment } from '../src/state/codec'

const shape = { name: text('a'), on: flag(), n: number(0, 0, 1), way: oneOf('x', 'y'), all: texts(), runs: maybeTexts(), zoom: span(), ys: spans(), color: numbers(), own: lists() }
const standard = readFragment(shape, '').state

test('what is as by default is not written', () => expect(writeFragment(shape, 'charts', standard)).toBe('#/charts'))

test('there and back', () => {
  const state = {
    name: 'ä&b=c#d',
    on: true,
    n: 0.6,
    way: 'y' as const,
    all: ['a,b', 'a~b', '100%'],
    runs: [],
    zoom: [-1.5, 1e9] as [number, number],
    ys: { 'train/loss:a': [0, 1] as [number, number] },
    color: { 'lr=0.1:x': 3 },
    own: [['loss', 'train/loss', 'a|b\\c'], ['2', 'x y']],
  }
  const fragment = writeFragment(shape, 'runs', state)
  expect(readFragment(shape, fragment)).toEqual({ page: 'runs', state })
  expect(writeFragment(shape, 'runs', readFragment(shape, fragment).state)).toBe(fragment)
})

test('nothing chosen is not the same as no choice', () => {
  expect(readFragment(shape, '#/charts?runs=').state.runs).toEqual([])
  expect(readFragment(shape, '#/charts').state.runs).toBeNull()
})

test('what cannot be read is as by default', () => {
  expect(readFragment(shape, '#/charts?n=much&way=z&zoom=5~1&ys=a:b~c&color=a:-1&color=b&own=alone&zoom').state).toEqual(standard)
  expect(readFragment(shape, '#/charts?n=7').state.n).toBe(1)
})
