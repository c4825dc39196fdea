// The order of tensors by one of their statistics.

import { expect, test } from 'vitest'
import type { TensorOverview } from '../src/data/tensors'
import { ranked } from '../src/pages/tensors/rank'

const tensor = (statistics: object | null) => ({ statistics }) as unknown as TensorOverview

test('the largest come first, and those without the statistic last, in either order', () => {
  const tensors = [tensor({ norm: 1 }), tensor({ norm: 'NaN' }), tensor({ norm: 'Infinity' }), tensor(null), tensor({ norm: 3 }), tensor({ norm: 1 })]
  expect(ranked(tensors, '-norm')).toEqual([2, 4, 0, 5, 1, 3])
  expect(ranked(tensors, 'norm')).toEqual([0, 5, 4, 2, 1, 3])
})

test('counts are compared as shares of all values', () => {
  const tensors = [tensor({ n: 1000, n_zero: 10, n_posinf: 0, n_neginf: 0 }), tensor({ n: 10, n_zero: 5, n_posinf: 1, n_neginf: 1 })]
  expect(ranked(tensors, '-n_zero')).toEqual([1, 0])
  expect(ranked(tensors, 'n_inf')).toEqual([0, 1])
})
