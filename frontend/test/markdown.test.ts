import { describe, expect, test } from 'vitest'
import { parseInline, parseMarkdown, type Block } from '../src/data/markdown'

const paragraph = (...inside: unknown[]) => ({ kind: 'paragraph', inside })

describe('lines', () => {
  test.each([
    ['a **b** _c_ ~~d~~ `e*f*`', ['a ', { kind: 'strong', inside: ['b'] }, ' ', { kind: 'em', inside: ['c'] }, ' ', { kind: 'del', inside: ['d'] }, ' ', { kind: 'code', text: 'e*f*' }]],
    ['**a *b* c**', [{ kind: 'strong', inside: ['a ', { kind: 'em', inside: ['b'] }, ' c'] }]],
    ['snake_case_name and 2 * 3 * 4', ['snake_case_name and 2 * 3 * 4']],
    ['\\*not\\* this', ['*not* this']],
    ['[a **b**](https://x.org/a_(b)?c=1)', [{ kind: 'link', href: 'https://x.org/a_(b)?c=1', inside: ['a ', { kind: 'strong', inside: ['b'] }] }]],
    ['see https://x.org/a_b_c now', ['see ', { kind: 'link', href: 'https://x.org/a_b_c', inside: ['https://x.org/a_b_c'] }, ' now']],
    ['![loss](https://x.org/a.png)', [{ kind: 'link', href: 'https://x.org/a.png', inside: ['loss'] }]],
    ['step *1000* ü', ['step ', { kind: 'em', inside: ['1000'] }, ' ü']],
  ])('%s', (text, inline) => expect(parseInline(text)).toEqual(inline))

  test.each(['[a](javascript:alert(1))', '[a](data:text/html,b)', '[a](/runs)', '<script>alert(1)</script>', '<img src=x onerror=alert(1)>'])('%s stays text', (text) =>
    expect(parseInline(text)).toEqual([text]),
  )
})

describe('blocks', () => {
  test('of every kind', () => {
    const text = '# One #\ntwo\nthree\n\n---\n> four\n> * five\n\n```py\n# six\n\n```\n| a | b |\n|:-:|--:|\n| `1` | 2\n| x \\| y |\n\nend'
    expect(parseMarkdown(text)).toEqual([
      { kind: 'heading', level: 1, inside: ['One'] },
      paragraph('two\nthree'),
      { kind: 'rule' },
      { kind: 'quote', blocks: [paragraph('four'), { kind: 'list', ordered: false, start: 1, items: [[paragraph('five')]] }] },
      { kind: 'code', text: '# six\n' },
      { kind: 'table', aligns: ['center', 'right'], head: [['a'], ['b']], rows: [[[{ kind: 'code', text: '1' }], ['2']], [['x | y'], []]] },
      paragraph('end'),
    ])
  })

  test('lists in lists', () => {
    const [list] = parseMarkdown('3. a\n   b\n   - c\n   - d\n4. e\n\n5. f\n\nend') as Extract<Block, { kind: 'list' }>[]
    expect(list).toMatchObject({ ordered: true, start: 3 })
    expect(list!.items).toEqual([
      [paragraph('a\nb'), { kind: 'list', ordered: false, start: 1, items: [[paragraph('c')], [paragraph('d')]] }],
      [paragraph('e')],
      [paragraph('f')],
    ])
  })

  test('no letter of a text is lost, whatever stands in it', () => {
    const lines = ['- a', '  - b', '1) c', '> d', '# e', '| f | g |', '| a | b | c |', '|---|---|', '```', 'h', '', '    i', '***', '**j', '[k](l', '   ']
    const letters = (text: string) => (text.match(/[a-l]/g) ?? []).sort().join('')
    let seed = 7
    for (let n = 0; n < 2_000; n++) {
      const text = Array.from({ length: 8 }, () => lines[(seed = (seed * 1103515245 + 12345) & 0x7fffffff) % lines.length]).join('\n')
      const fenced = text.replace(/^```$/gm, '')
      const found = JSON.stringify(parseMarkdown(text), (key, value: unknown) => (key === 'kind' || key === 'aligns' ? undefined : value)).replace(/"(inside|text|blocks|items|rows|head|level|ordered|start|href)":|true|false/g, '')
      expect(letters(found), text).toBe(letters(fenced))
    }
  })

  test('hostile texts take no longer than long ones', { timeout: 60_000 }, () => {
    for (const part of ['[', '**', '*a ', '`', '_a', '> ', '- ', '![a](', '|', '~~a', '1. ', '\\', 'http://']) {
      for (const one of [part, `${part}\n`]) expect(parseMarkdown(one.repeat(50_000 / one.length))).not.toEqual([])
    }
  })
})
