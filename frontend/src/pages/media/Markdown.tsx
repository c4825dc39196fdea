// A text as Markdown. It is drawn as elements, never as HTML, so nothing in it can be run or fetched.

import { useMemo } from 'preact/hooks'
import { MAX_CHARACTERS, parseMarkdown, type Block, type Inline } from '../../data/markdown'

export function Markdown({ text }: { text: string }) {
  const blocks = useMemo(() => (text.length <= MAX_CHARACTERS ? parseMarkdown(text) : null), [text])
  return blocks ? <div class="markdown">{blocks.map(drawBlock)}</div> : <span>{text}</span>
}

function drawBlock(block: Block, key: number) {
  switch (block.kind) {
    case 'heading': {
      const Heading = `h${Math.min(6, block.level + 3)}` as 'h4' // below those of the page
      return (
        <Heading key={key} class={`markdown-h${block.level}`}>
          {block.inside.map(drawInline)}
        </Heading>
      )
    }
    case 'code':
      return (
        <pre key={key} tabIndex={0}>
          <code>{block.text}</code>
        </pre>
      )
    case 'quote':
      return <blockquote key={key}>{block.blocks.map(drawBlock)}</blockquote>
    case 'rule':
      return <hr key={key} />
    case 'list': {
      const items = block.items.map((item, i) => <li key={i}>{item.length === 1 && item[0]!.kind === 'paragraph' ? item[0]!.inside.map(drawInline) : item.map(drawBlock)}</li>)
      return block.ordered ? (
        <ol key={key} start={block.start}>
          {items}
        </ol>
      ) : (
        <ul key={key}>{items}</ul>
      )
    }
    case 'table':
      return <Table key={key} {...block} />
  }
  return <p key={key}>{block.inside.map(drawInline)}</p>
}

function Table({ head, aligns, rows }: Extract<Block, { kind: 'table' }>) {
  const style = (i: number) => (aligns[i] ? { textAlign: aligns[i] } : undefined)
  return (
    <div class="markdown-table">
      <table>
        <thead>
          <tr>
            {head.map((cell, i) => (
              <th key={i} scope="col" style={style(i)}>
                {cell.map(drawInline)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, k) => (
            <tr key={k}>
              {row.map((cell, i) => (
                <td key={i} style={style(i)}>
                  {cell.map(drawInline)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function drawInline(part: Inline, key: number) {
  if (typeof part === 'string') return part
  if (part.kind === 'code') return <code key={key}>{part.text}</code>
  const inside = part.inside.map(drawInline)
  if (part.kind === 'link') {
    return (
      <a key={key} href={part.href} target="_blank" rel="noopener noreferrer">
        {inside}
      </a>
    )
  }
  const Tag = part.kind
  return <Tag key={key}>{inside}</Tag>
}
