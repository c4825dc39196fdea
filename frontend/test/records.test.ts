import { describe, expect, it } from 'vitest'
import { columnOf } from '../src/views/columns'
import { Columns, lineMeans, mergedAreas, retained, MAX_LINES, MAX_POINTS, MAX_VALUE_BYTES, MAX_VALUES, n_known, Records, type Batch } from '../src/views/records'
import { linesOf, STANDARD, type Series } from '../src/views/series'

const at = (...index: number[]): Pick<Batch, 'index' | 'step' | 'wall'> => ({ index: Float64Array.from(index), step: Float64Array.from(index), wall: Float64Array.from(index, (i) => 1000 + i) })
const numbers = (...index: number[]): Batch => ({ ...at(...index), y: Float64Array.from(index, (i) => i * 10) })
const values = (all: unknown[], from = 0): Batch => ({ ...at(...all.map((_, i) => from + i)), values: all })
const seriesOf = (records: Records, more: Partial<Series> = {}): Series => ({ id: 'a', label: 'a', style: { color: '#000000', dash: [] }, records, started: null, second: false, ...more })

describe('records', () => {
  it('join what comes in parts', () => {
    const records = new Records()
    records.push(numbers(0, 1))
    records.push(numbers(2))
    expect(Array.from(records.numbers.y)).toEqual([0, 10, 20])
    expect(records.version).toBe(2)
  })
  it('leave out what a new connection repeats, and go on', () => {
    const records = new Records()
    records.push(numbers(0, 1, 2))
    records.push(numbers(1, 2, 3))
    expect(Array.from(records.numbers.step)).toEqual([0, 1, 2, 3])
    records.push(values(['x'], 2))
    expect(records.values).toEqual([])
  })
  it('take what begins anew with later times', () => {
    expect(n_known({ ...at(0, 1), wall: Float64Array.from([5000, 5001]) }, { index: 40, wall: 4000 })).toBe(0)
    expect(n_known(numbers(3, 4, 5), { index: 4, wall: 1004 })).toBe(2)
  })
  it('stay within bounds, extremes kept', () => {
    const records = new Records()
    for (let k = 0; k < 100; k++) {
      const index = Array.from({ length: 1000 }, (_, i) => k * 1000 + i)
      records.push({ ...at(...index), y: Float64Array.from(index, (i) => (i === 31_234 ? 99 : Math.sin(i))) })
    }
    expect(records.n).toBe(100_000)
    expect(records.numbers.y.length).toBeLessThanOrEqual(MAX_POINTS)
    expect(records.numbers.y).toContain(99)
    const { step } = records.numbers
    expect(step.every((value, i) => i === 0 || value > step[i - 1]!)).toBe(true)
  })
  it('have an even resolution over the whole stream, however the records came', () => {
    const [one, two] = [new Records(), new Records()]
    const n = 300_000
    const y = (i: number) => (i % 15_000 === 7 ? 50 : Math.sin(i / 1e3))
    const batch = (from: number, to: number): Batch => {
      const index = Array.from({ length: Math.min(to, n) - from }, (_, i) => from + i)
      return { ...at(...index), y: Float64Array.from(index, y) }
    }
    for (let i = 0; i < n; i += 1_000) one.push(batch(i, i + 1_000))
    for (let i = 0; i < n; i += 7_321) two.push(batch(i, i + 7_321))
    expect(two.numbers.step).toEqual(one.numbers.step)
    const { step } = one.numbers
    const tenths = Array.from({ length: 9 }, (_, k) => step.filter((s) => s >= (k * n) / 10 && s < ((k + 1) * n) / 10).length)
    expect(Math.max(...tenths.slice(0, 8))).toBeLessThanOrEqual(2 * Math.min(...tenths.slice(0, 8)))
    for (let i = 7; i < n; i += 15_000) expect(step).toContain(i)
    expect(one.bucket).toBeGreaterThan(8)
  })
  it('keep some values of the whole stream, the newest all, and fewer of large ones', () => {
    const records = new Records()
    records.push(values(Array.from({ length: 300 }, (_, i) => `text ${i}`)))
    expect(records.values.length).toBeLessThanOrEqual(MAX_VALUES)
    expect(records.values[0]!.index).toBe(0)
    expect(records.values.slice(-60).map(({ index }) => index)).toEqual(Array.from({ length: 60 }, (_, i) => 240 + i))
    const large = () => ({ dtype: 'float32', shape: [2 ** 20], data: new Uint8Array(2 ** 22) })
    records.push(values(Array.from({ length: 20 }, large), 300))
    expect(records.values.filter(({ index }) => index >= 300).length).toBeLessThanOrEqual(MAX_VALUE_BYTES / 2 ** 22)
    expect(records.values.at(-1)!.index).toBe(319)
  })
  it('make a line of each name, up to a limit that is shown', () => {
    const records = new Records()
    const many = Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`n${i}`, i]))
    records.push(values([{ a: 1, b: { c: 2 } }, { a: 3 }]))
    expect([...records.lines.keys()]).toEqual(['a', 'b/c'])
    records.push(values([many], 2))
    expect(records.lines.size).toBe(MAX_LINES)
    expect(records.n_names_left_out).toBeGreaterThan(9_000)
  })
  it('take kinds that change', () => {
    const records = new Records()
    records.push(values([1, 'x', [1, 2], null, { a: NaN }, [1, 2, 'note'], [0.5, 1, 1.5, 2]]))
    expect(Array.from(records.numbers.y)).toEqual([1])
    expect(Array.from(records.points.x)).toEqual([1, 1])
    expect(records.notes).toEqual([{ x: 1, y: 2, text: 'note' }])
    expect(records.values).toHaveLength(7)
  })
})

it('what was read stays as it was while columns grow', () => {
  const columns = new Columns(2, 8, 0)
  for (let i = 0; i < 8; i++) columns.push(i, i % 3)
  const before = columns.columns.map((column) => Array.from(column))
  const held = columns.columns
  columns.push(8, 0)
  expect(held.map((column) => Array.from(column))).toEqual(before)
  expect(columns.n).toBeLessThanOrEqual(8)
})

it('a bucket keeps its first, last, smallest and largest record, and gaps', () => {
  const y = Float64Array.from([0, 5, -5, 1, 1, 1, 1, 1, 2, NaN, 3, 4, Infinity, 3, 2, 1])
  const index = Float64Array.from(y, (_, i) => i)
  const rows = Array.from(y, (_, i) => i)
  expect(retained(rows, index, [y], 3)).toEqual([0, 1, 2, 7, 8, 9, 11, 12, 15])
  // Twice thinned is as thinned once.
  expect(retained(retained(rows, index, [y], 2), index, [y], 3)).toEqual(retained(rows, index, [y], 3))
})

it('areas of thinned records are those that came with them, and add up', () => {
  const kept = [0, 3, 4]
  const [index, y] = [Float64Array.of(0, 1, 2, 3, 4), Float64Array.of(0, 4, NaN, 2, 0)]
  const areas = mergedAreas(index, y, new Float64Array(5).fill(NaN), kept)
  expect(areas).toEqual([0, 2 + 6, 1])
  const means = lineMeans(Float64Array.of(0, 3, 4), Float64Array.of(0, 2, 0), Float64Array.from(areas))
  expect([...means]).toEqual([NaN, 8 / 3, 1])
  const records = new Records()
  records.push({ ...numbers(0, 3), bits: 2, area: Float64Array.of(0, 8) })
  records.push(numbers(4))
  expect([...records.means!]).toEqual([NaN, 8 / 3, NaN])
})

describe('lines', () => {
  const records = new Records()
  records.push(numbers(0, 1, 2, 3))
  it.each([['step', [0, 1, 2, 3]], ['wall', [1000, 1001, 1002, 1003]], ['relative', [500, 501, 502, 503]], ['index', [0, 1, 2, 3]]] as const)('lie over %s', (x, expected) => {
    expect(Array.from(linesOf([seriesOf(records, { started: 500 })], { ...STANDARD, x }, null)[0]!.x)).toEqual(expected)
  })
  it('show the newest only, what is in view, and the raw line behind the smooth one', () => {
    expect(Array.from(linesOf([seriesOf(records)], { ...STANDARD, last: 2 }, null)[0]!.y)).toEqual([20, 30])
    expect(Array.from(linesOf([seriesOf(records)], STANDARD, [1.5, 2.5])[0]!.x)).toEqual([1, 2, 3])
    const [line] = linesOf([seriesOf(records)], { ...STANDARD, smooth: 0.5 }, null)
    expect(Array.from(line!.raw!)).toEqual([0, 10, 20, 30])
    expect(line!.y[3]).toBeLessThan(30)
  })
  it('of distributions are a band', () => {
    const made = new Records()
    made.push(values([{ counts: [1, 1], edges: [0, 1, 2] }]))
    const [line] = linesOf([seriesOf(made, { second: true })], STANDARD, null)
    expect(line).toMatchObject({ second: true, label: 'a (median, 10–90 %)' })
    expect(line!.low![0]!).toBeLessThan(line!.high![0]!)
  })
  it('of frames are one a record, older ones fainter', () => {
    const made = new Records()
    made.push(values([[1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6, 7]]))
    const lines = linesOf([seriesOf(made)], { ...STANDARD, frames: true, history: 1 }, null)
    expect(lines.map(({ y }) => Array.from(y))).toEqual([[2, 3, 4, 5], [3, 4, 5, 6, 7]])
    expect(lines[1]!.alpha).toBe(1)
    expect(lines[0]!.alpha!).toBeLessThan(0.6)
  })
  it('are put in order where steps go back', () => {
    const made = new Records()
    made.push({ index: Float64Array.from([0, 1, 2]), wall: Float64Array.from([0, 1, 2]), step: Float64Array.from([5, 3, 4]), y: Float64Array.from([1, 2, 3]) })
    const [line] = linesOf([seriesOf(made)], STANDARD, null)
    expect([Array.from(line!.x), Array.from(line!.y)]).toEqual([[3, 4, 5], [2, 3, 1]])
  })
})

describe('columns', () => {
  it('come as lists, typed arrays and bytes', () => {
    expect(Array.from(columnOf([1, 'NaN', null]))).toEqual([1, NaN, NaN])
    expect(Array.from(columnOf(Float32Array.from([1, 2])))).toEqual([1, 2])
    expect(Array.from(columnOf(new Uint8Array(Float64Array.from([3]).buffer)))).toEqual([3])
    expect(Array.from(columnOf(new DataView(BigInt64Array.from([4n]).buffer), true))).toEqual([4])
  })
  it('are refused otherwise', () => {
    expect(() => columnOf('x')).toThrow(TypeError)
    expect(() => columnOf(new Uint8Array(7))).toThrow(TypeError)
  })
})
