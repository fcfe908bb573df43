package datareplication

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/feedbridge/feedbridge/feed"
	"github.com/feedbridge/feedbridge/source"
	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

// The specification demands that HEAD is answered like GET, without the body. Many servers refuse it, or
// lack fields or whole pages in the answer, because no other client sends it. That is
// not the fault of the page: so an answer to HEAD that would stop the reading is compared with that to GET.

// errNoNext reports that a page lacks the next link that it must have.
var errNoNext = errors.New("it has no next link")

// mayBeOnlyHead reports whether GET may be answered without the error that HEAD had.
func mayBeOnlyHead(err error) bool {
	if v, ok := errors.AsType[*feed.Violation](err); ok && v != nil {
		return true
	}
	status := source.StatusOf(err)
	return status == http.StatusInternalServerError || status == http.StatusNotImplemented || status != 0 && errors.Is(err, feed.ErrPermanent) ||
		errors.Is(err, errNoContent) || errors.Is(err, errNoNext)
}

// recordHeadFault records that HEAD had an error for a page, and GET had none. A server that lags may
// lack a page or a link for one of the two, so that counts only when it happens again.
func (c *pageClient) recordHeadFault(url string, err error) {
	c.headFaults++
	kind := kindHeadDiffers
	switch status := source.StatusOf(err); {
	case status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		kind = kindHeadRefused
	case status == 0 && !errors.Is(err, errNoContent) && !errors.Is(err, errNoNext):
	case c.headFaults < confirmLooks:
		return
	}
	c.stopHead(kind, url, "HEAD and GET are answered differently, and GET is used from now on; with HEAD: %v", err)
}

// compareWithHead fails once if the header of a page is not what HEAD had, because the page to start at
// may be another one. The link to the previous page never changes, unless that is removed, and nothing
// does once the page has a next link.
func (c *pageClient) compareWithHead(got page.Header) error {
	had, what := c.lastHead, ""
	closed := had.Next != "" && got.Next != ""
	switch {
	case c.noHead || had.Self != got.Self:
	case got.Prev != "" && had.Prev != got.Prev:
		what = "prev link"
	case closed && had.Next != got.Next:
		what = "next link"
	case closed && !had.Modified.Equal(got.Modified):
		what = "Last-Modified"
	}
	if what == "" {
		return nil
	}
	c.stopHead(kindHeadDiffers, got.Self, "HEAD and GET have another %s, and GET is used from now on", what)
	return fmt.Errorf("GET %s: the answer to HEAD had another %s; both are requested with GET from now on", got.Self, what)
}

// stopHead has all headers requested with GET from now on.
func (c *pageClient) stopHead(kind, url, format string, args ...any) {
	c.noHead = true
	c.headFault.addAll(feed.NewViolation(kind, url, format, args...))
	c.log.Info("the server does not answer HEAD as it answers GET; using GET", "url", url)
}

// takeHeadFault returns the violation that was recorded, and removes it.
func (c *pageClient) takeHeadFault() sightings {
	v := c.headFault
	c.headFault = nil
	return v
}
