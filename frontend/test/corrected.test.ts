// What an error means, from the library's own sentences; and what a number was before and after a command.

import { describe, expect, it } from 'vitest'
import { corrected } from '../src/pages/ask/corrected'
import { around } from '../src/pages/control/around'

describe('the question that was meant', () => {
  const said: [query: string, said: string, meant: string | null][] = [
    ['batch.lss', "Unknown observable 'lss' at event 'batch' so far. Did you mean 'loss'? Known: grads, loss.", 'batch.loss'],
    ['loss', "Unknown event 'loss' so far. Did you mean 'batch.loss'? Known: batch. Waiting for the first.", 'batch.loss'],
    ['mean(loss)', "Unknown event 'loss' so far. Did you mean 'batch.loss'? Known: batch.", 'mean(batch.loss)'],
    ['batch.loss.men()', "Unknown function 'men' called on a value. Did you mean 'mean'? Known: abs.\n  batch.loss.men()\n   ^", 'batch.loss.mean()'],
    ['batch.loss.mean(evry=3)', "Wrong arguments for mean(x, axis=None): got an unexpected keyword argument 'evry'. Did you mean 'every'?", 'batch.loss.mean(every=3)'],
    ['batch.grads["dens"]', "Unknown key 'dens'. Did you mean 'dense'? Known: dense.", 'batch.grads["dense"]'],
    ['batch.los / batch.loss', "Unknown observable 'los' at event 'batch'. Did you mean 'loss'?", 'batch.loss / batch.loss'],
    ['batch.a$b', "Unknown observable 'a$b' at event 'batch'. Did you mean 'a$c'?", 'batch.a$c'],
    ['batch.x', "Unknown observable 'x' at event 'batch'. Known: loss.", null],
    ['batch.x', "Unknown observable 'y' at event 'batch'. Did you mean 'z'?", null],
    ['batch.loss.mean(every=)', 'Expected a query such as batch.loss, found invalid syntax', null],
  ]
  it.each(said)('of %s', (query, words, meant) => expect(corrected(query, words)).toBe(meant))
})

describe('around a command', () => {
  const numbers = (y: number[]) => ({ step: Float64Array.from(y.keys()), y: Float64Array.from(y) })
  it('are the means of the nearest fifty on each side', () => {
    const { before, after } = around(numbers([...Array(200).fill(1), ...Array(60).fill(3)]), 200)
    expect([before, after]).toEqual([{ n: 50, mean: 1 }, { n: 50, mean: 3 }])
  })
  it('count what is finite, and the step itself as after', () => {
    expect(around(numbers([1, NaN, 3, Infinity, 5]), 2)).toEqual({ before: { n: 1, mean: 1 }, after: { n: 2, mean: 4 } })
  })
  it('are null on a side without any', () => {
    expect(around(numbers([1, 2]), 5)).toEqual({ before: { n: 2, mean: 1.5 }, after: null })
    expect(around(numbers([]), 0)).toEqual({ before: null, after: null })
  })
})
