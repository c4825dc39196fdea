// A remedy for memory that grows while a page is redrawn.
//
// When Preact redraws a component in its place, its parent goes on holding the first virtual tree, and through parts
// that were left as they were (@preact/signals leaves those whose properties are the same) every tree in between. What
// was replaced is never looked at again, so its children are let go.

import { options, type VNode } from 'preact'

/** The names that Preact's builds give to what is within: a node's component, and that component's node; its children. */
interface Inner extends VNode {
  __c?: { __v?: Inner }
  __k?: unknown
}

let begun = false

export function forgetOldTrees(): void {
  if (begun) return
  begun = true
  const replaced = new WeakMap<Inner, Inner>()
  const { vnode: made, diffed } = options
  options.vnode = (node: Inner) => {
    // Only the copy that is made for drawing in place has a component already.
    const old = node.__c?.__v
    if (old && old !== node) replaced.set(node, old)
    made?.(node)
  }
  options.diffed = (node: Inner) => {
    const old = replaced.get(node)
    if (old && old.__k !== node.__k) old.__k = null
    diffed?.(node)
  }
}
