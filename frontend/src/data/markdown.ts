// Markdown as a tree of blocks and of what stands in their lines: CommonMark's plain part, and GitHub's tables. Nothing of
// it is HTML: tags in a text stay text, pictures become links, since they would be fetched from anywhere, and links go to the web only.

export type Inline = string | { kind: 'code'; text: string } | { kind: 'link'; href: string; inside: Inline[] } | { kind: 'strong' | 'em' | 'del'; inside: Inline[] }

export type Align = 'left' | 'center' | 'right' | undefined

export type Block =
  | { kind: 'heading'; level: number; inside: Inline[] }
  | { kind: 'paragraph'; inside: Inline[] }
  | { kind: 'code'; text: string }
  | { kind: 'list'; ordered: boolean; start: number; items: Block[][] }
  | { kind: 'quote'; blocks: Block[] }
  | { kind: 'table'; aligns: Align[]; head: Inline[][]; rows: Inline[][][] }
  | { kind: 'rule' }

/** Longer texts are shown as written: they are logs, and would take long to draw. */
export const MAX_CHARACTERS = 50_000
const MAX_DEPTH = 8
const LINK = /^(?:https?:\/\/|mailto:)/i

const FENCE = /^ {0,3}(`{3,}|~{3,})[^`]*$/
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:[ \t]+(.*)|)$/
const QUOTE = /^ {0,3}> ?/
const ALIGNS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/

// What is repeated is bounded, so that a hostile text takes no longer than a long one.
const SPANS =
  /\\([!-/:-@[-`{-~])|(`+)([^`]{1,500})\2(?!`)|!?\[([^[\]]{0,500})\]\(<?([^\s()<>]{1,1000}(?:\([^\s()]{0,100}\)[^\s()<>]{0,100})?)>?(?:\s"[^"]{0,200}")?\)|(\*\*|__)(?=\S)(.{1,500}?\S?)\6|~~(?=\S)(.{1,500}?)~~|\*(?=[^\s*])([^*]{1,500})\*|(?<![\p{L}\p{N}_])_(?=[^\s_])([^_]{1,500})_(?![\p{L}\p{N}_])|(https?:\/\/[^\s<>()[\]]{1,1000})/u

export function parseInline(text: string, depth = 0): Inline[] {
  const found: Inline[] = []
  const add = (part: Inline) => {
    const last = found.length - 1
    if (typeof part === 'string' && typeof found[last] === 'string') found[last] += part
    else if (part !== '') found.push(part)
  }
  let rest = text
  for (let span = SPANS.exec(rest); span && depth < MAX_DEPTH; span = SPANS.exec(rest)) {
    const [whole, escaped, , code, label, href, , strong, del, star, bar, address] = span
    const inner = (inside: string) => parseInline(inside, depth + 1)
    add(rest.slice(0, span.index))
    if (escaped !== undefined) add(escaped)
    else if (code !== undefined) add({ kind: 'code', text: code.trim() || code })
    else if (href !== undefined) add(LINK.test(href) ? { kind: 'link', href, inside: label ? inner(label) : [href] } : whole)
    else if (strong !== undefined) add({ kind: 'strong', inside: inner(strong) })
    else if (del !== undefined) add({ kind: 'del', inside: inner(del) })
    else if (address !== undefined) add({ kind: 'link', href: address, inside: [address] })
    else add({ kind: 'em', inside: inner((star ?? bar)!) })
    rest = rest.slice(span.index + whole.length)
  }
  add(rest)
  return found
}

const cellsOf = (line: string): string[] =>
  line
    .trim()
    .replace(/^\||(?<!\\)\|$/g, '')
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll('\\|', '|'))

const alignOf = (cell: string): Align => (cell.endsWith(':') ? (cell.startsWith(':') ? 'center' : 'right') : cell.startsWith(':') ? 'left' : undefined)

const isTable = (lines: readonly string[], i: number): boolean =>
  lines[i]!.includes('|') && ALIGNS.test(lines[i + 1] ?? '') && cellsOf(lines[i]!).length === cellsOf(lines[i + 1]!).length

const begins = (line: string): boolean => [FENCE, HEADING, RULE, QUOTE, ITEM].some((form) => form.test(line))

export const parseMarkdown = (text: string): Block[] => parseBlocks(text.replace(/\r\n?/g, '\n').replaceAll('\t', '    ').split('\n'), 0)

function parseBlocks(lines: readonly string[], depth: number): Block[] {
  const blocks: Block[] = []
  for (let i = 0; i < lines.length; ) {
    if (!lines[i]!.trim()) i += 1
    else {
      const [block, next] = depth < MAX_DEPTH ? parseBlock(lines, i, depth) : paragraph(lines, i)
      blocks.push(block)
      i = next
    }
  }
  return blocks
}

/** The block that begins at a line, and the line behind it. */
function parseBlock(lines: readonly string[], i: number, depth: number): [Block, number] {
  const line = lines[i]!
  const fence = FENCE.exec(line)
  if (fence) return fenced(lines, i, fence[1]!)
  const heading = HEADING.exec(line)
  if (heading) return [{ kind: 'heading', level: heading[1]!.length, inside: parseInline(heading[2] ?? '') }, i + 1]
  if (RULE.test(line)) return [{ kind: 'rule' }, i + 1]
  if (QUOTE.test(line)) {
    const end = until(lines, i, (one) => !QUOTE.test(one))
    return [{ kind: 'quote', blocks: parseBlocks(lines.slice(i, end).map((one) => one.replace(QUOTE, '')), depth + 1) }, end]
  }
  if (ITEM.test(line)) return list(lines, i, depth)
  if (isTable(lines, i)) return table(lines, i)
  return paragraph(lines, i)
}

function until(lines: readonly string[], i: number, ends: (line: string, i: number) => boolean): number {
  let end = i + 1
  while (end < lines.length && !ends(lines[end]!, end)) end += 1
  return end
}

function fenced(lines: readonly string[], i: number, fence: string): [Block, number] {
  const end = until(lines, i, (line) => line.trim().startsWith(fence) && !line.trim().replaceAll(fence[0]!, ''))
  return [{ kind: 'code', text: lines.slice(i + 1, end).join('\n') }, end + 1]
}

function table(lines: readonly string[], i: number): [Block, number] {
  const end = until(lines, i + 1, (line) => !line.includes('|'))
  const [head, aligns, ...rows] = lines.slice(i, end).map(cellsOf)
  const fit = (row: string[]) => Array.from({ length: Math.max(head!.length, row.length) }, (_, k) => parseInline(row[k] ?? ''))
  return [{ kind: 'table', aligns: aligns!.map(alignOf), head: fit(head!), rows: rows.map(fit) }, end]
}

function list(lines: readonly string[], begin: number, depth: number): [Block, number] {
  const first = ITEM.exec(lines[begin]!)![2]!
  const items: Block[][] = []
  let i = begin
  for (let item = ITEM.exec(lines[i]!); item && item[2]!.at(-1) === first.at(-1); item = ITEM.exec(lines[i] ?? '')) {
    if (RULE.test(lines[i]!)) break
    const indent = item[1]!.length + item[2]!.length + 1
    const inside = (line: string) => line.startsWith(' '.repeat(Math.min(indent, 2)))
    const end = until(lines, i, (line, k) => (line.trim() ? !inside(line) && (begins(line) || !lines[k - 1]!.trim()) : !inside(lines[k + 1] ?? '') && !ITEM.test(lines[k + 1] ?? '')))
    const own = lines.slice(i + 1, end).map((line) => line.replace(new RegExp(`^ {0,${indent}}`), ''))
    items.push(parseBlocks([item[3] ?? '', ...own], depth + 1))
    i = end
  }
  const ordered = /\d/.test(first)
  return [{ kind: 'list', ordered, start: ordered ? parseInt(first) : 1, items }, i]
}

function paragraph(lines: readonly string[], i: number): [Block, number] {
  const end = until(lines, i, (line, k) => !line.trim() || begins(line) || isTable(lines, k))
  return [{ kind: 'paragraph', inside: parseInline(lines.slice(i, end).map((line) => line.trim()).join('\n')) }, end]
}
