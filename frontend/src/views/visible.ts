// Control characters and those that change the direction of a text, made visible: in a name they show another name.

import { options, type VNode } from 'preact'

// All controls but tab and line breaks; marks, embeddings, overrides and isolates of direction.
const INVISIBLE = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|\r(?!\n)/g

/** A text as Python writes it: `\x1b`, `\u202e`. */
export function visible(text: string): string {
  return text.replace(INVISIBLE, (c) => {
    if (c === '\r') return '\\r'
    const code = c.charCodeAt(0)
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`
  })
}

let follows = false

/** From now on, show every text and every tooltip so, wherever a name stands. */
export function showInvisible(): void {
  if (follows) return
  follows = true
  const { vnode: before } = options
  options.vnode = (made) => {
    const text = made as unknown as { type: unknown; props: string }
    if (text.type === null && typeof text.props === 'string') text.props = visible(text.props)
    else if (typeof made.type === 'string') showInAttributes(made as VNode<Attributes>)
    before?.(made)
  }
}

type Attributes = { title?: unknown; 'aria-label'?: unknown }

function showInAttributes({ props }: VNode<Attributes>): void {
  if (typeof props.title === 'string') props.title = visible(props.title)
  if (typeof props['aria-label'] === 'string') props['aria-label'] = visible(props['aria-label'])
}
