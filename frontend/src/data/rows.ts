// The rows of a table that was saved with the page: found, sorted and paged as the server does it (views/sheets.py).

export interface Table {
  step: number
  wall_time: number
  columns: { name: string; type: string }[]
  /** Of the table; the file may have fewer. */
  n_rows: number
  n_found: number
  offset: number
  rows: unknown[][]
}

interface Wanted {
  find?: string | number
  sort?: string | number
  descending?: string | number
  offset?: string | number
  limit?: string | number
}

type Row = unknown[]

const CONDITION = /^\s*(?:"([^"]+)"|([^\s<>=!~"]+))\s*(<=|>=|==|=|!=|<|>|~)\s*(.+?)\s*$/
const isMedia = (type: string): boolean => ['image', 'figure', 'audio', 'mixed'].includes(type)
const isNumeric = (type: string): boolean => /^(bool|u?int|float|bfloat)/.test(type)

interface Column {
  place: number
  type: string
}

/** A cell to compare: JSON has infinities and NaN as texts; null where it is missing. */
function cellOf(row: Row, { place, type }: Column): number | string | null {
  const cell = row[place]
  if (cell === null || !isNumeric(type)) return cell as string | null
  const value = Number(cell)
  return Number.isNaN(value) ? null : value
}

/** Some rows of a table, in an order; throws what the page shows of a condition that cannot be met. */
export function rowsOf(all: Table, { find = '', sort = '', descending = '', offset = 0, limit = 100 }: Wanted): Table {
  let rows = all.rows.filter(filterOf(all, String(find).trim()))
  if (sort !== '') rows = sorted(rows, columnOf(all, String(sort)), String(descending) === 'true')
  const [from, n] = [Number(offset), Number(limit)]
  return { ...all, n_found: rows.length, offset: from, rows: rows.slice(from, from + n) }
}

function filterOf(all: Table, find: string): (row: Row) => boolean {
  if (!find) return () => true
  const conditions = find.split(/\s+and\s+/).map((part) => CONDITION.exec(part))
  if (conditions.every((one) => one !== null)) {
    const tests = conditions.map(([, quoted, name, compare, wanted]) => testOf(all, (quoted ?? name)!, compare!, wanted!.replace(/^['"]+|['"]+$/g, '')))
    return (row) => tests.every((test) => test(row))
  }
  const readable = all.columns.flatMap(({ type }, i) => (['image', 'figure', 'audio'].includes(type) ? [] : [i]))
  return (row) => readable.some((i) => has(row[i], find))
}

function testOf(all: Table, name: string, compare: string, wanted: string): (row: Row) => boolean {
  const column = columnOf(all, name, compare === '~')
  if (compare === '~') return (row) => has(row[column.place], wanted)
  const other = isNumeric(column.type) ? numberOf(name, column.type, wanted) : wanted
  return (row) => {
    const cell = cellOf(row, column)
    return cell !== null && meets(cell, compare, other)
  }
}

function meets(cell: number | string, compare: string, other: number | string): boolean {
  switch (compare) {
    case '<':
      return cell < other
    case '<=':
      return cell <= other
    case '>':
      return cell > other
    case '>=':
      return cell >= other
    case '!=':
      return cell !== other
  }
  return cell === other
}

function numberOf(name: string, type: string, text: string): number {
  const value = /^(true|false)$/i.test(text) ? Number(text.toLowerCase() === 'true') : Number(text)
  if (Number.isNaN(value)) throw new Error(`Expected ${type} to compare '${name}' with, got '${text}'`)
  return value
}

function columnOf({ columns }: Table, name: string, anyType = false): Column {
  const place = columns.findIndex((one) => one.name === name)
  if (place < 0) throw new Error(`Unknown column '${name}'. Known: ${columns.map((one) => one.name).join(', ')}`)
  const { type } = columns[place]!
  if (!anyType && isMedia(type)) throw new Error(`Expected a column of numbers, times or texts, got '${name}', which is ${type}`)
  return { place, type }
}

const has = (cell: unknown, text: string): boolean => cell !== null && String(cell).toLowerCase().includes(text.toLowerCase())

/** What is missing comes last; equal ones stay in their order. */
function sorted(rows: readonly Row[], column: Column, descending: boolean): Row[] {
  const keyed = rows.map((row) => ({ row, key: cellOf(row, column) }))
  const there = keyed.flatMap(({ row, key }) => (key === null ? [] : [{ row, key: typeof key === 'string' ? key.toLowerCase() : key }]))
  const sign = descending ? -1 : 1
  there.sort((a, b) => (a.key < b.key ? -sign : a.key > b.key ? sign : 0))
  return [...there.map(({ row }) => row), ...keyed.flatMap(({ row, key }) => (key === null ? [row] : []))]
}
