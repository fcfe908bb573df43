package page_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/feedbridge/feedbridge/source/datareplication/page"
)

func Example() {
	resp := &http.Response{
		Header: http.Header{
			"Link":          {"<https://shop.example.com/feed/2>; rel=self, </feed/1>; rel=prev"},
			"Last-Modified": {"Thu, 05 Oct 2023 03:00:13 GMT"},
			"Content-Type":  {"multipart/package; boundary=b"},
		},
		Body: io.NopCloser(strings.NewReader("--b\r\n" +
			"Content-ID: <1@shop.example.com>\r\n" +
			"Content-Type: application/json\r\n" +
			"Last-Modified: Thu, 05 Oct 2023 03:00:13 GMT\r\n" +
			"Operation-Type: http-equiv=PUT\r\n" +
			"\r\n" +
			"{\"sku\": 4711}\r\n" +
			"--b--\r\n")),
	}
	base := &url.URL{Scheme: "https", Host: "shop.example.com", Path: "/feed/latest"}
	header, _, err := page.ParseHeader(resp.Header, base, true)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("self", header.Self)
	fmt.Println("prev", header.Prev)

	const maxEntity = 8 << 20 // bytes
	parts := page.NewReader(resp.Body, header.Boundary, header.Self, maxEntity)
	for i := 0; ; i++ {
		part, err := parts.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		entity, violations, err := page.NewEntity(part, header.Self, i)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(entity.Op, entity.ID, string(entity.Body), len(violations))
	}
	// Output:
	// self https://shop.example.com/feed/2
	// prev https://shop.example.com/feed/1
	// PUT <1@shop.example.com> {"sku": 4711} 0
}
