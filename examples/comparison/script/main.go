// Command script is the program that many would write: it publishes the entries of a feed that are
// not in a file yet. With -msg-id each message has the Nats-Msg-Id by which NATS drops repeats.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mmcdole/gofeed"
	"github.com/nats-io/nats.go"
)

func main() {
	msgID := flag.Bool("msg-id", false, "publish with Nats-Msg-Id, and recognise changes by content")
	flag.Parse()
	every, err := time.ParseDuration(os.Getenv("EVERY"))
	if err != nil {
		log.Fatal(err)
	}
	conn, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	js, err := conn.JetStream()
	if err != nil {
		log.Fatal(err)
	}
	file, err := os.OpenFile("seen", os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile("seen")
	if err != nil {
		log.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		seen[strings.TrimSpace(line)] = true
	}
	for ; ; <-time.After(every) {
		document, err := gofeed.NewParser().ParseURL(os.Getenv("FEED_URL"))
		if err != nil {
			log.Print(err)
			continue
		}
		for _, item := range slices.Backward(document.Items) {
			body, err := json.Marshal(item)
			if err != nil {
				log.Fatal(err)
			}
			key, message := item.GUID+" "+item.Updated, &nats.Msg{Subject: "entries", Data: body, Header: nats.Header{}}
			if *msgID {
				hash := sha256.Sum256(body)
				key = hex.EncodeToString(hash[:])
				message.Header.Set(nats.MsgIdHdr, key)
			}
			if seen[key] {
				continue
			}
			if _, err := js.PublishMsg(message); err != nil {
				log.Print(err)
				break // the next poll goes on here
			}
			seen[key] = true
			if _, err := file.WriteString(key + "\n"); err != nil {
				log.Fatal(err)
			}
		}
	}
}
