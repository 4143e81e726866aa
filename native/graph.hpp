// Launches as one CUDA graph, whose arguments are set anew where they have changed.
#pragma once

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "driver.hpp"

// What graphs need of the driver: CUDA 12.3 or later.
class GraphDriver {
public:
    explicit GraphDriver(const Driver& driver)
        : exists_(driver.find("cuStreamIsCapturing", is_capturing) && driver.find("cuThreadExchangeStreamCaptureMode", exchange_mode) &&
                  driver.find("cuStreamCreate", create_stream) && driver.find("cuStreamDestroy_v2", destroy_stream) &&
                  driver.find("cuStreamBeginCapture_v2", begin_capture) && driver.find("cuStreamEndCapture", end_capture) &&
                  driver.find("cuStreamGetCaptureInfo_v3", capture_info) && driver.find("cuGraphDestroy", destroy_graph) &&
                  driver.find("cuGraphKernelNodeGetParams_v2", parameters_of) && driver.find("cuGraphInstantiateWithFlags", instantiate) &&
                  driver.find("cuGraphExecKernelNodeSetParams_v2", set_parameters) && driver.find("cuGraphLaunch", launch) &&
                  driver.find("cuGraphExecDestroy", destroy)) {}

    // Returns whether graphs can be launched on a stream: not by an old driver, nor while another graph is captured from it.
    bool can_launch(void* stream) const {
        int captures = 0;
        return exists_ && is_capturing(stream, &captures) == 0 && captures == 0;
    }

    int (*is_capturing)(void*, int*);
    int (*exchange_mode)(int*);
    int (*create_stream)(void**, uint32);
    int (*destroy_stream)(void*);
    int (*begin_capture)(void*, int);
    int (*end_capture)(void*, void**);
    int (*capture_info)(void*, int*, uint64*, void**, void* const**, const void**, std::size_t*);
    int (*destroy_graph)(void*);
    int (*parameters_of)(void*, NodeParameters*);
    int (*instantiate)(void**, void*, unsigned long long);
    int (*set_parameters)(void*, void*, const NodeParameters*);
    int (*launch)(void*, void*);
    int (*destroy)(void*);

private:
    bool exists_;
};

class Graph {
public:
    // Captures launches, whose `arguments` begin at `begins`. Another thread may be capturing a graph meanwhile.
    Graph(const Driver& driver, const GraphDriver& graphs, const std::vector<Kernel>& kernels, const std::vector<uint32>& begins,
          std::vector<unsigned char> arguments)
        : driver_(driver), graphs_(graphs), begins_(begins), arguments_(std::move(arguments)) {
        begins_.push_back(arguments_.size());
        const Relaxed mode(graphs);
        void* made = nullptr;
        check(graphs.create_stream(&made, 1));  // CU_STREAM_NON_BLOCKING
        const Owned stream(made, graphs.destroy_stream);
        check(graphs.begin_capture(stream.get(), Relaxed::mode));
        const auto end = [&] {
            void* graph = nullptr;
            const int error = graphs.end_capture(stream.get(), &graph);
            graph_.reset(graph);
            return error;
        };
        try {
            for (std::size_t i = 0; i < kernels.size(); i++) {
                driver.launch(kernels[i], stream.get(), &arguments_[begins_[i]]);
                nodes_.push_back(last_node(stream.get()));
            }
        } catch (...) {
            end();
            throw;
        }
        check(end());
        check(graphs.instantiate(&made, graph_.get(), 0));
        executable_.reset(made);
    }

    // Launches the graph with other arguments. Earlier launches that are still running keep theirs.
    void launch(void* stream, const std::vector<unsigned char>& arguments) {
        for (std::size_t i = 0; i < nodes_.size(); i++) {
            const uint32 begin = begins_[i], size = begins_[i + 1] - begin;
            if (std::memcmp(&arguments_[begin], &arguments[begin], size) == 0) continue;
            void* pointers[] = {const_cast<unsigned char*>(&arguments[begin])};
            nodes_[i].parameters.arguments = pointers;
            check(graphs_.set_parameters(executable_.get(), nodes_[i].handle, &nodes_[i].parameters));
            std::memcpy(&arguments_[begin], &arguments[begin], size);
        }
        check(graphs_.launch(executable_.get(), stream));
    }

private:
    using Owned = std::unique_ptr<void, int (*)(void*)>;

    struct Node {
        void* handle;
        NodeParameters parameters;
    };

    // Lets a thread make graphs while another thread captures one.
    struct Relaxed {
        static constexpr int mode = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
        const GraphDriver& graphs;
        int other = mode;
        explicit Relaxed(const GraphDriver& graphs) : graphs(graphs) { graphs.exchange_mode(&other); }
        ~Relaxed() { graphs.exchange_mode(&other); }
    };

    void check(int error) const { driver_.check(error, "a CUDA graph of launches"); }

    // Returns the node of the last launch, the only one that the next launch will depend on.
    Node last_node(void* stream) const {
        int status;
        void* const* nodes = nullptr;
        const void* edges = nullptr;
        std::size_t count = 0;
        check(graphs_.capture_info(stream, &status, nullptr, nullptr, &nodes, &edges, &count));
        if (count != 1) throw std::runtime_error("a CUDA graph of launches: a launch has made " + std::to_string(count) + " nodes");
        Node node = {nodes[0], {}};
        check(graphs_.parameters_of(node.handle, &node.parameters));
        node.parameters.extra = nullptr;
        return node;
    }

    const Driver& driver_;
    const GraphDriver& graphs_;
    std::vector<uint32> begins_;  // and the end of the last
    std::vector<unsigned char> arguments_;
    std::vector<Node> nodes_;
    Owned graph_{nullptr, graphs_.destroy_graph}, executable_{nullptr, graphs_.destroy};
};
