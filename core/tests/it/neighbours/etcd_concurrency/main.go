// Enters sections under a mutex of etcd's package concurrency until its standard input ends:
// NAME ENDPOINT KEY SECONDS FILE. Seconds are the TTL of its session. Appends to the file when it entered and left.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sys/unix"
)

func main() {
	name, endpoint, key, file := os.Args[1], os.Args[2], os.Args[3], os.Args[5]
	ttl, err := strconv.Atoi(os.Args[4])
	check(err)
	history, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	check(err)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 20 * time.Second})
	check(err)
	defer client.Close()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	check(err)
	defer session.Close()
	mutex := concurrency.NewMutex(session, key)
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	for !over.Load() {
		check(mutex.Lock(context.Background()))
		write(history, "enter", name)
		time.Sleep(2 * time.Millisecond)
		write(history, "leave", name)
		check(mutex.Unlock(context.Background()))
	}
}

// One call of write for each line, so that lines of several programs do not mix.
func write(history *os.File, what, name string) {
	var now unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	_, err := fmt.Fprintf(history, "%s %s %d\n", what, name, now.Nano())
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
