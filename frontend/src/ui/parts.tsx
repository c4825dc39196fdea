// Small parts that every page uses.

import { signal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { useLayoutEffect, useRef } from 'preact/hooks'
import { Icon, type IconName } from './Icon'
import { Popover } from './Popover'

interface IconButtonProps {
  icon: IconName
  label: string
  onClick: (event: MouseEvent) => void
  pressed?: boolean
  disabled?: boolean
}

/** A button that is only an icon: its label is its name and its tooltip. */
export function IconButton({ icon, label, onClick, pressed, disabled }: IconButtonProps) {
  return (
    <button type="button" class="icon-button" title={label} aria-label={label} aria-pressed={pressed} disabled={disabled} onClick={onClick}>
      <Icon name={icon} />
    </button>
  )
}

interface ChoiceProps<T extends string> {
  label: string
  options: readonly (readonly [value: T, text: string])[]
  value: T
  onChange: (value: T) => void
}

/** A few options side by side, one of them chosen. */
export function Choice<T extends string>({ label, options, value, onChange }: ChoiceProps<T>) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map(([option, text]) => (
        <button key={option} type="button" aria-pressed={option === value} onClick={() => onChange(option)}>
          {text}
        </button>
      ))}
    </div>
  )
}

export function Toggle({ label, title, on, onChange }: { label: string; title?: string; on: boolean; onChange: (on: boolean) => void }) {
  return (
    <button type="button" class="toggle" title={title} aria-pressed={on} onClick={() => onChange(!on)}>
      {label}
    </button>
  )
}

interface SearchProps {
  label: string
  placeholder: string
  value: string
  problem?: string | null
  hotkey?: string
  onChange: (text: string) => void
}

/** A text box that shows why its text is invalid. */
export function Search({ label, placeholder, value, problem, hotkey, onChange }: SearchProps) {
  return (
    <div class="search-box">
      <label class="search">
        <Icon name="search" size={14} />
        <input type="search" aria-label={label} placeholder={placeholder} value={value} spellcheck={false} autocomplete="off" data-hotkey={hotkey} aria-invalid={Boolean(problem)} onInput={({ currentTarget }) => onChange(currentTarget.value)} />
        {hotkey && !value && <kbd aria-hidden="true">{hotkey}</kbd>}
      </label>
      {problem && (
        <p class="field-problem" role="alert">
          {problem}
        </p>
      )}
    </div>
  )
}

/** An empty state: the reason, and what to do about it. */
export function Empty({ title, children, mark = true }: { title: string; children?: ComponentChildren; mark?: boolean }) {
  return (
    <div class="empty" aria-busy={title.endsWith('…')}>
      {mark && <Glass />}
      <h2>{title}</h2>
      {children}
    </div>
  )
}

export function Glass({ size = 56 }: { size?: number }) {
  return (
    <svg class="glass" width={size} height={size} viewBox="0 0 32 32" aria-hidden="true">
      <circle cx="16" cy="16" r="14" class="glass-rim" />
      <circle cx="16" cy="16" r="10.5" class="glass-pane" />
      <path d="M6.5 18c3-6 5-6 8-1s6 4 11-5" class="glass-line" />
    </svg>
  )
}

interface MenuProps {
  icon: IconName
  label: string
  items: readonly { text: string; onClick: () => void }[]
}

/** A button that opens a list of things to do. */
export function Menu({ icon, label, items }: MenuProps) {
  return (
    <Popover icon={icon} label={label} menu>
      {(close) =>
        items.map(({ text, onClick }) => (
          <button key={text} type="button" role="menuitem" tabIndex={-1} onClick={() => (close(), onClick())}>
            {text}
          </button>
        ))
      }
    </Popover>
  )
}

/** The open dialogs, the topmost last: nothing beside that one can be seen or clicked. */
export const dialogs = signal<readonly HTMLElement[]>([])

/** A window over the page; Escape and a click beside it close it, and focus goes back to where it was. */
export function Dialog({ label, onClose, wide, children }: { label: string; onClose: () => void; wide?: boolean; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null)
  useLayoutEffect(() => {
    const dialog = ref.current!
    const before = document.activeElement as HTMLElement | null
    dialog.showModal()
    dialogs.value = [...dialogs.peek(), dialog]
    return () => {
      dialogs.value = dialogs.peek().filter((one) => one !== dialog)
      dialog.close()
      before?.focus()
    }
  }, [])
  return (
    <dialog
      ref={ref}
      class={wide ? 'dialog dialog-wide' : 'dialog'}
      aria-label={label}
      onCancel={(event) => (event.preventDefault(), onClose())}
      onClick={({ target, currentTarget }) => target === currentTarget && onClose()}
    >
      <div class="dialog-body">{children}</div>
    </dialog>
  )
}
