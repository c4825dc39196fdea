// The order of tensors by one of their statistics.

import type { TensorOverview } from '../../data/tensors'

export function rankOf(rank: string): { name: string; falls: boolean } {
  return { name: rank.replace(/^-/, ''), falls: rank.startsWith('-') }
}

/** The places of tensors, sorted; those without the statistic come last, and counts are compared as shares of all values. */
export function ranked(tensors: readonly TensorOverview[], rank: string): number[] {
  const { name, falls } = rankOf(rank)
  const keys = tensors.map((one) => keyOf(one, name))
  const order = (a: number, b: number) => (keys[a] === keys[b] ? a - b : falls ? keys[b]! - keys[a]! : keys[a]! - keys[b]!)
  const places = tensors.map((_, i) => i)
  return [...places.filter((i) => !Number.isNaN(keys[i])).sort(order), ...places.filter((i) => Number.isNaN(keys[i]))]
}

function keyOf({ statistics }: TensorOverview, name: string): number {
  if (!statistics) return NaN
  if (name === 'n_inf') return (statistics.n_posinf + statistics.n_neginf) / statistics.n
  const value = Number(statistics[name as keyof typeof statistics])
  return name.startsWith('n_') ? (value < 0 ? NaN : value / statistics.n) : value
}
