import { describe, expect, it } from 'vitest'
import cases from '../../tests/views/shown.json'
import { Records } from '../src/views/records'
import { ordinal, sentenceOf, type Shown } from '../src/views/shown'

const numbers = (from: number, n: number, bits = 0, stride = 1) => {
  const index = Float64Array.from({ length: n }, (_, i) => from + i * stride)
  return { step: index, wall: index, index, y: index.map(Math.sin), bits }
}

describe('what a line shows', () => {
  it.each(cases)('is said in the words of Python: $text', ({ text, ...shown }) => {
    expect(sentenceOf(shown as Shown)).toBe(text)
  })
  it('counts as in English', () => {
    expect([1, 2, 3, 4, 11, 12, 13, 21, 22, 102, 112, 1024].map(ordinal)).toEqual(['1st', '2nd', '3rd', '4th', '11th', '12th', '13th', '21st', '22nd', '102nd', '112th', '1,024th'])
  })
  it('is all as long as everything is held', () => {
    const records = new Records()
    records.push(numbers(5, 1_204))
    expect(records.shown).toEqual({ n_made: 1_204, n_shown: 1_204, every: 1 })
  })
  it('follows from what the browser thinned', () => {
    const records = new Records(1_000)
    records.push(numbers(0, 10_000))
    const { n_made, n_shown, every } = records.shown!
    expect(n_made).toBe(10_000)
    expect(n_shown).toBeLessThanOrEqual(1_000)
    expect(every).toBe(records.bucket)
    expect(every).toBeGreaterThan(1)
  })
  it('follows from what was thinned on the way to a late page', () => {
    const records = new Records()
    records.push(numbers(0, 1_000, 7, 128))
    records.push(numbers(128_000, 10))
    expect(records.shown).toEqual({ n_made: 128_010, n_shown: 1_010, every: 128 })
  })
  it('counts what was lost apart', () => {
    const records = new Records()
    records.push(numbers(0, 10))
    records.push(numbers(1_000, 10))
    expect(records.shown).toEqual({ n_made: 20, n_shown: 20, every: 1 })
  })
  it('is not said of streams of other values', () => {
    const records = new Records()
    records.push({ ...numbers(0, 1), y: undefined, values: ['text'] })
    expect(records.shown).toBeNull()
  })
})
