// Light, dark, or as the system is. It is the reader's own business, so it stays out of links.

import { computed, effect, signal } from '@preact/signals'
import { printing } from '../views/printing'

export const THEMES = ['system', 'light', 'dark'] as const
export type Theme = (typeof THEMES)[number]

const KEY = 'sightglass-theme'
const systemDark = matchMedia('(prefers-color-scheme: dark)')
const systemIsDark = signal(systemDark.matches)

export const theme = signal<Theme>(THEMES.find((t) => t === localStorage.getItem(KEY)) ?? 'system')
export const dark = computed(() => !printing.value && (theme.value === 'system' ? systemIsDark.value : theme.value === 'dark'))

export function followTheme(): void {
  systemDark.addEventListener('change', ({ matches }) => (systemIsDark.value = matches))
  effect(() => {
    localStorage.setItem(KEY, theme.value)
    document.documentElement.dataset.theme = dark.value ? 'dark' : 'light'
  })
}

export function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length]!
}
