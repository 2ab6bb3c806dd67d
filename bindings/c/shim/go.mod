module polylatch.example/shim

go 1.19
