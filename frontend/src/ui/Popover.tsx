// A button that opens a box below it, or a list of things to do.

import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { Icon, type IconName } from './Icon'

interface PopoverProps {
  icon: IconName
  label: string
  /** Whether it is a list of things to do. */
  menu?: boolean
  /** Whether something is set in it. */
  lit?: boolean
  /** What stands beside the icon, such as how many there are. */
  badge?: string
  onOpen?: () => void
  children: (close: () => void) => ComponentChildren
}

/** A button that opens a box below it; Escape and a click beside it close it. Works within a shadow root too. */
export function Popover({ icon, label, menu = false, lit = false, badge = '', onOpen, children }: PopoverProps) {
  const [open, setOpen] = useState(false)
  const root = useRef<HTMLDivElement>(null)
  const within = () => [...root.current!.querySelectorAll<HTMLElement>('.menu-items button, .menu-items input, .menu-items select')]
  const button = () => root.current!.querySelector('button')!
  useEffect(() => {
    if (!open) return
    within()[0]?.focus()
    const away = (event: Event) => !event.composedPath().includes(root.current!) && setOpen(false)
    document.addEventListener('pointerdown', away, true)
    return () => document.removeEventListener('pointerdown', away, true)
  }, [open])
  const onKeyDown = (event: KeyboardEvent) => {
    if (!open) return
    const all = within()
    const step = menu ? { ArrowDown: 1, ArrowUp: -1 }[event.key] : undefined
    if (event.key === 'Escape') {
      setOpen(false)
      button().focus()
    } else if (step) all[(all.indexOf(event.target as HTMLElement) + step + all.length) % all.length]!.focus()
    else return
    event.preventDefault()
    event.stopPropagation()
  }
  const close = () => {
    setOpen(false)
    button().focus()
  }
  return (
    <div class="menu" ref={root} onKeyDown={onKeyDown}>
      <button type="button" class={lit ? 'icon-button is-lit' : 'icon-button'} title={label} aria-label={label} aria-haspopup={menu ? 'menu' : 'dialog'} aria-expanded={open} onClick={() => (open || onOpen?.(), setOpen(!open))}>
        <Icon name={icon} />
        {badge && <span class="badge">{badge}</span>}
      </button>
      {open && (
        <div class="menu-items" role={menu ? 'menu' : 'dialog'} aria-label={label}>
          {children(close)}
        </div>
      )}
    </div>
  )
}
