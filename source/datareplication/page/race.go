//go:build race

package page

// underRace reports whether the race detector is on.
const underRace = true
