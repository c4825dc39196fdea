// The modules of a model, from the names of its tensors.

import { expect, test } from 'vitest'
import { treeOf } from '../src/pages/tensors/tree'

const shown = (names: string[], shut: string[] = []) => treeOf(names, new Set(shut)).map(({ label, depth, place, n }) => `${'  '.repeat(depth)}${label}${place === null ? ` (${n})` : ''}`)

test('modules are rows, in natural order, with their tensors below', () => {
  expect(shown(['net/layer10/w', 'net/layer2/w', 'net/layer2/b', 'loss'])).toEqual(['loss', 'net/ (3)', '  layer2/ (2)', '    b', '    w', '  layer10/w'])
})

test('a module with one child is no row of its own', () => {
  expect(shown(['a.b.c.x', 'a.b.c.y'])).toEqual(['a.b.c. (2)', '  x', '  y'])
})

test('a shut module hides what it holds, and counts it', () => {
  expect(shown(['m/a/x', 'm/a/y', 'm/b'], ['m/a/'])).toEqual(['m/ (3)', '  a/ (2)', '  b'])
})

test('a tensor may have the name of a module, and two series one name', () => {
  expect(shown(['a', 'a/b', 'a/c', 'x', 'x'])).toEqual(['a', 'a/ (2)', '  b', '  c', 'x', 'x'])
})

test('every name is there once, whatever it is', () => {
  const names = ['', '/', '//', 'a/', 'a', '.', 'a/.b', 'a/b', 'a//b']
  const places = treeOf(names).flatMap(({ place }) => (place === null ? [] : [place]))
  expect([...places].sort()).toEqual(names.map((_, i) => i))
})
