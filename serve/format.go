package serve

// format writes pages.
type format interface {
	// contentType returns the media type of a page.
	contentType(p *page) string
	// appendEntity appends an entity to a page.
	appendEntity(b []byte, p *page, e *entity) []byte
	// headAndTail returns the bytes before and after the entities.
	headAndTail(c *Config, p *page) (head, tail []byte)
}

var formats = map[Format]format{DataReplication: multipart{}, Atom: atomFormat{}, RSS: rssFormat{}}
