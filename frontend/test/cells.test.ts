import { describe, expect, test } from 'vitest'
import { cellText, contrast, inSight, MAX_SCROLL, rampOf, reaching, scrollOf, shadeOf, sizeOf, textOn, shortest, tsvOf, widthOf, type Format } from '../src/views/cells'
import type { Rgb } from '../src/views/palette'

const auto: Format = { notation: 'auto', digits: 4 }

describe('what a cell says', () => {
  test.each([
    [0.000_000_06, auto, '6e−8'],
    [-0, auto, '−0'],
    [1 / 3, auto, '0.3333'],
    [1 / 3, { notation: 'fixed', digits: 2 }, '0.33'],
    [1234.6, { notation: 'scientific', digits: 3 }, '1.235e+3'],
    ['NaN', auto, 'NaN'],
    ['-Infinity', { notation: 'fixed', digits: 1 }, '−Inf'],
    ['1152921504606846976', auto, '1152921504606846976'],
    ['-4611686018427387904', auto, '−4611686018427387904'],
    [true, auto, 'True'],
    ['(0.25-1.5j)', auto, '0.25−1.5j'],
    ['(nan+infj)', auto, 'NaN+Infj'],
    ['2j', auto, '0+2j'],
  ] as const)('%s', (cell, format, expected) => {
    expect(cellText(cell, format)).toBe(expected)
  })

  test('the widest of them has room', () => {
    for (const notation of ['auto', 'fixed', 'scientific'] as const) {
      for (const digits of [1, 4, 9]) {
        for (const value of [-123.456789, -1.23456789e-8, 0.000123456789, -999.999999]) {
          const format = { notation, digits }
          expect(cellText(value, format).length).toBeLessThanOrEqual(widthOf('float32', format, 1000))
        }
      }
    }
  })
})

test('a cell as a number: complex by its magnitude', () => {
  expect(sizeOf('(3-4j)')).toBe(5)
  expect(sizeOf('Infinity')).toBe(Infinity)
  expect(sizeOf('NaN')).toBeNaN()
  expect(sizeOf(true)).toBe(1)
})

describe('colours', () => {
  const rgb = (text: string) => (text.startsWith('#') ? [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16)) : text.match(/\d+/g)!.map(Number)) as Rgb

  test('can be read on in light and dark, whatever the value', () => {
    for (const dark of [false, true]) {
      for (let value = -1; value <= 1; value += 0.01) {
        const { ground, text } = shadeOf(value, 1, dark)
        expect(contrast(rgb(ground), rgb(text))).toBeGreaterThan(4.5)
      }
      for (const value of [NaN, Infinity, -Infinity]) {
        const { ground, text } = shadeOf(value, 1, dark)
        expect(contrast(rgb(ground), rgb(text))).toBeGreaterThan(4.5)
      }
    }
  })

  test('are symmetric: zero is the ground, what is beyond the bound is as the bound', () => {
    expect(shadeOf(0, 5, false)).toEqual(shadeOf(3, 0, false))
    expect(shadeOf(9, 5, false)).toEqual(shadeOf(5, 5, false))
    expect(shadeOf(-5, 5, false)).not.toEqual(shadeOf(5, 5, false))
  })

  test('text is the better of black and white', () => {
    expect(textOn([255, 255, 255])).not.toEqual(textOn([0, 0, 0]))
  })
})

describe('scrolling', () => {
  test('a short table scrolls as it is', () => {
    expect(scrollOf(1_000, 400)).toEqual({ length: 1_000, ratio: 1 })
  })

  test('both ends of a long one can be reached', () => {
    const real = 10_000_000 * 24
    const { length, ratio } = scrollOf(real, 600)
    expect(length).toBe(MAX_SCROLL)
    expect((length - 600) * ratio).toBeCloseTo(real - 600, 0)
  })

  test('rows that are in sight in part are in sight', () => {
    expect(inSight(30, 100, 24, 1_000)).toEqual([1, 6])
    expect(inSight(0, 100, 24, 2)).toEqual([0, 2])
    expect(inSight(0, 0, 24, 0)).toEqual([0, 0])
  })

  test('a row is brought into sight by as little as it takes', () => {
    expect(reaching(240, 100, 24, 11)).toBe(240)
    expect(reaching(240, 100, 24, 2)).toBe(48)
    expect(reaching(0, 100, 24, 9)).toBe(140)
  })
})

test('copied cells keep all their digits', () => {
  expect(tsvOf([[0.1, 'NaN'], [true, '1152921504606846976']], 'float64')).toBe('0.1\tNaN\nTrue\t1152921504606846976')
})

test('a float32 has the digits that tell it from others', () => {
  expect(shortest(2.8481228351593018, 'float32')).toBe('2.8481228')
  expect(shortest(Math.fround(0.1), 'float32')).toBe('0.1')
  expect(shortest(2.8481228351593018, 'float64')).toBe('2.8481228351593018')
  expect([0, -0, 1, -1e-45, 16777216].map((value) => Math.fround(Number(shortest(Math.fround(value), 'float32'))))).toEqual([0, 0, 1, Math.fround(-1e-45), 16777216])
  for (let i = 0; i < 500; i++) {
    const value = Math.fround((Math.random() - 0.5) * 10 ** (Math.random() * 60 - 30))
    expect(Math.fround(Number(shortest(value, 'float32')))).toBe(value)
  }
  expect(tsvOf([[Math.fround(0.1)]], 'float32')).toBe('0.1')
})

test('texts stay as they are', () => {
  expect(cellText('a-b', auto, 'str')).toBe('a-b')
  expect(cellText('NaN', auto, 'str')).toBe('NaN')
  expect(cellText('-inf', auto)).toBe('−Inf')
  expect(tsvOf([['a-b', 'NaN']], 'str')).toBe('a-b\tNaN')
})

test.each([false, true])('a colour key has the colours of the cells, dark %s', (dark) => {
  const of = (value: number) => shadeOf(value, 2, dark).ground
  expect([rampOf(dark, true)[0], rampOf(dark, true).at(-1)]).toEqual([of(-2), of(2)])
  expect([rampOf(dark, false)[0], rampOf(dark, false).at(-1)]).toEqual([of(0), of(2)])
})
