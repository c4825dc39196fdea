// Where the views' colours come from: the page, or the box that holds them in a notebook.

import { createContext } from 'preact'

export const Root = createContext<Element | null>(null)
