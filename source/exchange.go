package source

import (
	"net/http"
	"time"
)

// Exchange is one request and the header of its response.
type Exchange struct {
	Method string
	Status int // 0 if there was no response
	Err    error
	Took   time.Duration // to the end of the header
}

// observed reports each exchange that a transport makes.
type observed struct {
	transport http.RoundTripper
	observe   func(Exchange)
}

func (o observed) RoundTrip(r *http.Request) (*http.Response, error) {
	start := time.Now()
	response, err := o.transport.RoundTrip(r)
	e := Exchange{Method: r.Method, Err: err, Took: time.Since(start)}
	if response != nil {
		e.Status = response.StatusCode
	}
	o.observe(e)
	return response, err
}
