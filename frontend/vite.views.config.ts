import { defineConfig } from 'vite'

// The views and the card of a run as one module for notebooks: one file, no imports.
export default defineConfig({
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    outDir: '../src/sightglass/views/static',
    emptyOutDir: false,
    target: 'es2022',
    license: { fileName: 'THIRD_PARTY.md' },
    reportCompressedSize: false,
    lib: { entry: 'src/notebook/index.ts', formats: ['es'], fileName: () => 'views.js' },
    rolldownOptions: { output: { codeSplitting: false, minify: true } },
  },
})
