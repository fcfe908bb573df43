package datareplication

import (
	"errors"

	"github.com/feedbridge/feedbridge/source"
)

// errNoContent is the answer 204 to a request for a page.
var errNoContent = errors.New("the server answers 204 No Content")

// isGone reports whether err is the answer that a page does not exist.
func isGone(err error) bool { return source.IsGone(err) || errors.Is(err, errNoContent) }
