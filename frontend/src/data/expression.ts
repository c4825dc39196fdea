// The language of filters, from text to a tree. Words side by side must all match, as with `and`; a word is a regular
// expression on the name. Nothing is refused while it is typed: what cannot be read is left out, and the first fault
// is told with its place.
//
//   val/accuracy > 0.5 and opt.name == "adam"
//   not (state = failed or lr in (0.1, 0.01)) mnist

export type Operator = '<' | '<=' | '>' | '>=' | '=' | '!=' | '~' | 'in' | 'contains'

export type Node =
  | { kind: 'word'; pattern: RegExp }
  | { kind: 'compare'; key: string; at: number; operator: Operator; values: string[]; pattern?: RegExp }
  | { kind: 'not'; of: Node }
  | { kind: 'and' | 'or'; of: Node[] }

export interface Fault {
  message: string
  /** Where it begins in the text. */
  at: number
}

export interface Expression {
  /** Null matches everything. */
  node: Node | null
  fault: Fault | null
}

const SPACE = /\s*/y
const KEY = /[\w./@-]+/y
const QUOTED = /"([^"]*)"|'([^']*)'/y
const OPERATOR = /\s*(<=|>=|!=|==|=|<|>|~)|\s+(not\s+in|in|contains)(?![\w./-])/y
const KEYWORD = /(and|or|not)(?![\w./-])/iy
const LOOSE = /,|\s/
const OPEN = /[([]/y
const CLOSE = /[)\]]/y

class Reader {
  place = 0
  fault: Fault | null = null
  constructor(readonly text: string) {}

  blame(message: string, at = this.place): null {
    this.fault ??= { message, at }
    return null
  }

  take(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.place
    const found = pattern.exec(this.text)
    if (found) this.place = pattern.lastIndex
    return found
  }

  get over(): boolean {
    this.take(SPACE)
    return this.place >= this.text.length
  }

  keyword(...wanted: string[]): boolean {
    this.take(SPACE)
    const before = this.place
    const found = this.take(KEYWORD)
    if (found && wanted.includes(found[1]!.toLowerCase())) return true
    this.place = before
    return false
  }

  /** Characters up to a space, or to a bracket that closes none of them. */
  loose(end = /\s/): string {
    const from = this.place
    let depth = 0
    let inQuotes = false
    for (; this.place < this.text.length; this.place++) {
      const char = this.text[this.place]!
      if (char === '"') inQuotes = !inQuotes
      if (inQuotes) continue
      if (end.test(char)) break
      if ('(['.includes(char)) depth++
      if (')]'.includes(char) && --depth < 0) break
    }
    return this.text.slice(from, this.place).replaceAll('"', '')
  }
}

export function parse(text: string): Expression {
  const reader = new Reader(text)
  const parts: (Node | null)[] = []
  while (!reader.over) {
    parts.push(either(reader))
    if (!reader.over && reader.take(CLOSE)) reader.blame(`There is no bracket that this one closes`, reader.place - 1)
  }
  return { node: joined('and', parts), fault: reader.fault }
}

function joined(kind: 'and' | 'or', parts: readonly (Node | null)[]): Node | null {
  const of = parts.filter((part) => part !== null)
  return of.length > 1 ? { kind, of } : (of[0] ?? null)
}

function either(reader: Reader): Node | null {
  const parts = [all(reader)]
  while (reader.keyword('or')) parts.push(all(reader))
  return joined('or', parts)
}

function all(reader: Reader): Node | null {
  const parts: (Node | null)[] = []
  let expected = false
  while (!reader.over && !')]'.includes(reader.text[reader.place]!)) {
    const before = reader.place
    if (reader.keyword('or')) {
      if (parts.length) {
        reader.place = before
        break
      }
      reader.blame('Expected a condition before `or`', before)
      continue
    }
    if (reader.keyword('and')) {
      if (expected || parts.length === 0) reader.blame('Expected a condition before `and`', before)
      expected = true
      continue
    }
    expected = false
    parts.push(unary(reader))
  }
  return joined('and', parts)
}

function unary(reader: Reader): Node | null {
  if (reader.over) return null
  if (reader.keyword('not') || (reader.text[reader.place] === '!' && ++reader.place)) {
    const of = unary(reader)
    return of && { kind: 'not', of }
  }
  const opened = reader.place
  if (reader.text[reader.place] === '(') {
    reader.place++
    const inside = either(reader)
    if (reader.over || !reader.take(CLOSE)) reader.blame('This bracket is not closed', opened)
    return inside
  }
  return comparison(reader) ?? word(reader)
}

/** A word is a pattern on the name: all of it, brackets included, up to a space. */
function word(reader: Reader): Node | null {
  const at = reader.place
  const pattern = patternOf(reader, reader.loose(), at)
  if (reader.place === at) reader.place++ // so that reading goes on whatever stands there
  return pattern && { kind: 'word', pattern }
}

function patternOf(reader: Reader, text: string, at: number): RegExp | null {
  if (text === '') return null
  try {
    return new RegExp(text, 'i')
  } catch (error) {
    return reader.blame((error as Error).message.replace(/^Invalid regular expression: /, ''), at)
  }
}

/** A key, an operator and a value. Null, and nothing taken, where there is none; an unfinished one matches everything. */
function comparison(reader: Reader): Node | null {
  const at = reader.place
  const quoted = reader.take(QUOTED)
  const key = quoted ? (quoted[1] ?? quoted[2]!) : reader.take(KEY)?.[0]
  const found = key === undefined ? null : reader.take(OPERATOR)
  if (key === undefined || !found) {
    reader.place = at
    return null
  }
  const written = (found[1] ?? found[2]!).replace(/\s+/g, ' ')
  if (written === 'in' && quoted) {
    const [list] = reader.over ? [] : [reader.take(KEY)?.[0]]
    return list ? { kind: 'compare', key: list, at, operator: 'contains', values: [key] } : nothing
  }
  const operator = (written === '==' ? '=' : written.replace('not ', '')) as Operator
  reader.take(SPACE)
  const from = reader.place
  const values = operator === 'in' ? listed(reader) : one(reader)
  if (values.length === 0) {
    if (!reader.over) reader.blame(`Expected a value after \`${written}\``, from)
    return nothing
  }
  const compared: Node = { kind: 'compare', key, at, operator, values }
  if (operator === '~') {
    const pattern = patternOf(reader, values[0]!, from)
    if (!pattern) return nothing
    compared.pattern = pattern
  }
  return written === 'not in' ? { kind: 'not', of: compared } : compared
}

/** What matches everything: a comparison that is still being typed. */
const nothing: Node = { kind: 'and', of: [] }

function one(reader: Reader): string[] {
  if (reader.over) return []
  const quoted = reader.take(QUOTED)
  const value = quoted ? (quoted[1] ?? quoted[2]!) : reader.loose()
  return value === '' ? [] : [value]
}

function listed(reader: Reader): string[] {
  const opened = reader.place
  if (reader.over || !reader.take(OPEN)) return one(reader)
  const values: string[] = []
  while (!reader.over && !reader.take(CLOSE)) {
    const quoted = reader.take(QUOTED)
    const value = quoted ? (quoted[1] ?? quoted[2]!) : reader.loose(LOOSE)
    if (value) values.push(value)
    if (!reader.over && reader.text[reader.place] === ',') reader.place++
    else if (!value && !quoted && !reader.over && !')]'.includes(reader.text[reader.place]!)) reader.place++
  }
  if (!')]'.includes(reader.text[reader.place - 1]!)) reader.blame('This bracket is not closed', opened)
  return values
}

/** The keys that an expression compares, with their places. */
export function keysOf(node: Node | null): { key: string; at: number }[] {
  if (!node || node.kind === 'word') return []
  if (node.kind === 'compare') return [{ key: node.key, at: node.at }]
  return node.kind === 'not' ? keysOf(node.of) : node.of.flatMap(keysOf)
}
