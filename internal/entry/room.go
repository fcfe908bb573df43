package entry

import (
	"net/url"
	"strings"
)

// room is how many bytes resolved references and namespaces of extensions may take. Beyond it,
// references are not resolved and extensions are left out: a long base or namespace name
// could be repeated for each of many small elements.
type room int

// roomFor returns the room for an entry of that size.
func roomFor(size int) *room { return new(room(2*size + 1<<10)) }

// take reports whether there is room for that many bytes, which it takes also if there is not.
func (r *room) take(n int) bool {
	*r -= room(n)
	return *r >= 0
}

// resolve returns an absolute URL, if there is room for it.
func (r *room) resolve(base, ref string) string {
	if *r <= 0 {
		return ref
	}
	to := ResolveURL(base, ref)
	r.take(max(0, len(to)-len(ref)))
	return to
}

// longestBase is how long a base may be, in bytes. A longer one is ignored, because each reference is
// resolved against it.
const longestBase = 2 << 10

// rebase returns the base of an element in which an xml:base is.
func (r *room) rebase(base, at string) string {
	if len(at) > longestBase {
		return base
	}
	if to := r.resolve(base, at); len(to) <= longestBase {
		return to
	}
	return base
}

// ResolveURL returns a reference relative to a base as an absolute URL; as it is if
// that is not possible.
func ResolveURL(base, ref string) string {
	ref = strings.TrimSpace(ref)
	to, err := url.Parse(ref)
	if base == "" || err != nil || to.IsAbs() {
		return ref
	}
	from, err := url.Parse(base)
	if err != nil || !from.IsAbs() {
		return ref
	}
	return from.ResolveReference(to).String()
}
