package datareplication

import (
	"errors"
	"net/http"

	"github.com/feedbridge/feedbridge/source"
)

// errNoContent is the answer 204 to a request for a page.
var errNoContent = errors.New("the server answers 204 No Content")

// isGone reports whether err is the answer that a page does not exist.
func isGone(err error) bool {
	status := statusOf(err)
	return status == http.StatusNotFound || status == http.StatusGone || errors.Is(err, errNoContent)
}

// statusOf returns the status of the answer that an error is about, or 0.
func statusOf(err error) int {
	var status *source.StatusError
	if errors.As(err, &status) {
		return status.Status
	}
	return 0
}
